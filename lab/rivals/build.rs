//! With the feature `native`, finds the native pools and compiles the shim over them. Without it,
//! does nothing.

#[cfg(feature = "native")]
fn main() {
    println!("cargo:rerun-if-changed=src/native/shim.cpp");
    let mut shim = cc::Build::new();
    shim.cpp(true).std("c++17").file("src/native/shim.cpp").opt_level(2);
    for library in ["tbb", "glib-2.0", "libuv"] {
        match pkg_config::probe_library(library) {
            Ok(found) => {
                shim.includes(found.include_paths);
            }
            Err(error) => {
                eprintln!(
                    "feature `native` needs the development files of {library} (Debian: \
                     libtbb-dev libasio-dev libglib2.0-dev libuv1-dev pkg-config g++)"
                );
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
    shim.compile("uwork_native_shim");
}

#[cfg(not(feature = "native"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
