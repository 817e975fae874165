//! Does nothing: how long the system takes to start and end a program, for `cargo xtask bench`.

fn main() {}
