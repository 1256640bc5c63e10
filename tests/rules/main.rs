//! The rules, each by a test that names it (`s07_…`), on every device that replays graphs.

#![allow(unreachable_pub)]

mod cache;
mod common;
mod gpu;
mod kinds;
mod legacy;
mod lifetimes;
mod modes;
mod prepare;
mod streams;
mod unwinding;
