//! Links the program of a development build at fixed addresses. Tests start it ten thousand times, and half of such a start was
//! adding its place in memory to 370,000 addresses. A release keeps its places random.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
