//! All routes: those of the table, and that of the Model Context Protocol, whose tools are answered by others.

use std::sync::LazyLock;

use crate::mcp;
use crate::routes::{self, Route};

static ALL: LazyLock<Vec<&'static Route>> =
    LazyLock::new(|| routes::routes().chain([&mcp::http::ROUTE]).collect());

/// Returns all routes.
pub fn routes() -> &'static [&'static Route] {
    &ALL
}
