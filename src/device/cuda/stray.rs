//! Driver calls of somebody else, for tests.

use std::ffi::c_void;
use std::sync::Arc;

use super::api::Handle;
use super::{Cuda, check};
use crate::device::driver::{
    Driver, DriverCode, DriverError, DriverResult, RawEvent, RawGraph, RawPtr, RawStream,
    StrayCalls,
};

type HostFunction = Arc<dyn Fn() + Send + Sync>;

// Safety, for every block below: as for `Driver`; what a test gives it keeps alive.
impl StrayCalls for Cuda {
    fn stream_query(&self, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuStreamQuery", unsafe { (self.api.stream_query)(stream.0 as Handle) })
    }

    fn context_synchronize(&self) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuCtxSynchronize", unsafe { (self.api.ctx_synchronize)() })
    }

    fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuEventSynchronize", unsafe { (self.api.event_synchronize)(event.0 as Handle) })
    }

    fn event_query(&self, event: RawEvent) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuEventQuery", unsafe { (self.api.event_query)(event.0 as Handle) })
    }

    fn mem_alloc_async(&self, bytes: usize, stream: RawStream) -> DriverResult<RawPtr> {
        let _current = self.context.enter()?;
        let mut address = 0;
        // SAFETY: see above.
        check("cuMemAllocAsync", unsafe {
            (self.api.mem_alloc_async)(&raw mut address, bytes, stream.0 as Handle)
        })?;
        Ok(RawPtr(address))
    }

    fn mem_free_async(&self, ptr: RawPtr, stream: RawStream) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuMemFreeAsync", unsafe { (self.api.mem_free_async)(ptr.0, stream.0 as Handle) })
    }

    fn memcpy_htod(&self, dst: RawPtr, bytes: &[u8]) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above; the copy is done when the call returns.
        check("cuMemcpyHtoD", unsafe {
            (self.api.memcpy_htod)(dst.0, bytes.as_ptr().cast(), bytes.len())
        })
    }

    fn memcpy_htod_async(
        &self,
        dst: RawPtr,
        bytes: &'static [u8],
        stream: RawStream,
    ) -> DriverResult<()> {
        let _current = self.context.enter()?;
        let (source, stream) = (bytes.as_ptr().cast(), stream.0 as Handle);
        // SAFETY: see above; the source is there for ever.
        check("cuMemcpyHtoDAsync", unsafe {
            (self.api.memcpy_htod_async)(dst.0, source, bytes.len(), stream)
        })
    }

    fn launch_host_function(&self, stream: RawStream, function: HostFunction) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // Never freed: a graph may call it as long as the process lives, and only tests do this.
        let function = Box::into_raw(Box::new(function));
        // SAFETY: see above; `call` gets what it expects.
        check("cuLaunchHostFunc", unsafe {
            (self.api.launch_host_func)(stream.0 as Handle, call, function.cast())
        })
    }

    fn module_load(&self) -> DriverResult<u64> {
        const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
            .visible .entry nothing() { ret; }\n\0";
        let _current = self.context.enter()?;
        self.load_module(PTX).map(|module| module as u64).map_err(|(error, _)| error)
    }

    fn module_unload(&self, module: u64) -> DriverResult<()> {
        let _current = self.context.enter()?;
        // SAFETY: see above.
        check("cuModuleUnload", unsafe { (self.api.module_unload)(module as Handle) })
    }

    fn add_child_graph(&self, stream: RawStream, child: RawGraph) -> DriverResult<()> {
        const SET_DEPENDENCIES: u32 = 1;
        const CALL: &str = "cuStreamGetCaptureInfo";
        let _current = self.context.enter()?;
        let stream = stream.0 as Handle;
        let (mut status, mut id, mut graph) = (0, 0, std::ptr::null_mut());
        let (mut nodes, mut count) = (std::ptr::null(), 0);
        let mut node = std::ptr::null_mut();
        // SAFETY: see above; the dependencies are valid until the next call on this stream, which
        // is after they were read.
        unsafe {
            check(
                CALL,
                (self.api.stream_get_capture_info)(
                    stream,
                    &raw mut status,
                    &raw mut id,
                    &raw mut graph,
                    &raw mut nodes,
                    &raw mut count,
                ),
            )?;
            if status != 1 {
                return Err(DriverError::new(CALL, DriverCode::IllegalState));
            }
            check(
                "cuGraphAddChildGraphNode",
                (self.api.graph_add_child_graph_node)(
                    &raw mut node,
                    graph,
                    nodes,
                    count,
                    child.0 as Handle,
                ),
            )?;
            check(
                "cuStreamUpdateCaptureDependencies",
                (self.api.stream_update_capture_dependencies)(
                    stream,
                    &raw mut node,
                    1,
                    SET_DEPENDENCIES,
                ),
            )
        }
    }

    fn captured_nodes(&self, stream: RawStream) -> DriverResult<Option<usize>> {
        let graph = {
            let _current = self.context.enter()?;
            self.capture_graph(stream)
        };
        match graph {
            Ok(graph) => self.graph_node_count(RawGraph(graph as u64)).map(Some),
            Err(error) if error.code() == DriverCode::IllegalState => Ok(None),
            Err(error) => Err(error),
        }
    }
}

unsafe extern "C" fn call(function: *mut c_void) {
    // SAFETY: `launch_host_function` passed a pointer to one that is never freed.
    let function = unsafe { &*function.cast::<HostFunction>() };
    function();
}
