//! A context is stored in the producer.

use graph_runner::*;

struct Step<'a> {
    context: std::cell::RefCell<Option<&'a mut Enqueue<'a>>>,
}

impl<'a> Producer for Step<'a> {
    type Kind = kind::Capturable;
    type Variant = ();
    const NAME: &'static str = "step";
}

impl<'a> Capturable for Step<'a> {
    fn enqueue(&self, _: &(), cx: &mut Enqueue<'_>) -> Result<()> {
        *self.context.borrow_mut() = Some(cx);
        Ok(())
    }
}

fn main() {}
