//! The migrations are compiled in; a changed one must be compiled in again.

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
}
