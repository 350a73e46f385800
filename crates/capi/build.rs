//! Compiles the library's part of the kernel-compatible headers. It is C, because it has variadic
//! functions and the kernel's formats.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=kernel");
    println!("cargo:rerun-if-changed=include");
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .define("_GNU_SOURCE", None)
        .define("UW_KERNEL_LIBRARY", None)
        .include("include/uwork/kernel");
    build.warnings(true).extra_warnings(true).opt_level(2);
    for entry in std::fs::read_dir("kernel")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            build.file(path);
        }
    }
    build.try_compile("uwork_kernel")?;
    Ok(())
}
