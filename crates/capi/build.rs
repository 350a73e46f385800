//! Compiles the C sources of the kernel-compatible headers. They are C, because they have variadic
//! functions and the kernel's formats.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A link to the project's folder.
    let kernel = Path::new("kernel");
    let (sources, headers) = (kernel.join("src"), kernel.join("include"));
    // The kernel-compatible headers include `uwork.h`.
    for folder in [sources.as_path(), headers.as_path(), Path::new("include")] {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    let mut build = cc::Build::new();
    build
        .std("gnu11")
        .define("_GNU_SOURCE", None)
        .define("UW_KERNEL_LIBRARY", None)
        .include(headers.join("uwork/kernel"));
    build.warnings(true).extra_warnings(true).opt_level(2);
    for entry in std::fs::read_dir(sources)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            build.file(path);
        }
    }
    build.try_compile("uwork_kernel")?;
    Ok(())
}
