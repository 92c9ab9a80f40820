//! Limits of the texts of a request. The host keeps them, and a guest may begin many requests without a grant.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};

/// The longest path of a request, with its query.
const PATH_BYTES_MAX: usize = 8 << 10;

/// The longest method or authority of a request. A host name has at most 253. wasmtime limits a scheme to 64.
const WORD_BYTES_MAX: usize = 512;

/// The name in wasmtime-wasi-http; a test notices when it changes.
const HTTP_TYPES: &str = "wasi:http/types@0.2.12";

/// Put the limits before the functions that set the texts. A text that is too long is answered as an invalid one.
pub(crate) fn limit_request_texts<T: WasiHttpView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let mut types = linker.instance(HTTP_TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, T>, (request, method): (Resource<_>, Method)| {
            if matches!(&method, Method::Other(name) if name.len() > WORD_BYTES_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, T>, (request, text): (Resource<_>, Option<String>)| {
            if is_longer(&text, WORD_BYTES_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, text)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, T>, (request, text): (Resource<_>, Option<String>)| {
            let Some(text) = text
                .map(absolute)
                .transpose()
                .ok()
                .filter(|text| !is_longer(text, PATH_BYTES_MAX))
            else {
                return Ok((Err(()),));
            };
            Ok((store.data_mut().http().set_path_with_query(request, text)?,))
        },
    )
}

/// Returns a path as written in a request line: `/` if it's empty. Refuses anything not starting with `/` or `?`, apart from `*` alone.
fn absolute(path: String) -> Result<String, ()> {
    match path.as_bytes().first() {
        Some(b'/') => Ok(path),
        None | Some(b'?') => Ok(format!("/{path}")),
        Some(b'*') if path.len() == 1 => Ok(path),
        _ => Err(()),
    }
}

fn is_longer(text: &Option<String>, bytes_max: usize) -> bool {
    text.as_ref().is_some_and(|text| text.len() > bytes_max)
}
