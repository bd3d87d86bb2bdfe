//! Tells the linker what an addon of Node is.

fn main() {
    napi_build::setup();
}
