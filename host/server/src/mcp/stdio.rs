//! One client on stdin and stdout.

use rmcp::serve_server;
use rmcp::service::{QuitReason, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio;

use super::{Backend, Server};
use campanile_control::problem::{ErrorCode, Problem};

/// The greatest size of one message of a client; longer ones are dropped.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Serve the client on stdin and stdout until it closes stdin.
///
/// # Errors
///
/// When the client does not speak the protocol, or the server fails.
pub async fn serve_stdio(backend: impl Backend) -> Result<(), Problem> {
    let (stdin, stdout) = stdio();
    let transport =
        AsyncRwTransport::new_server(stdin, stdout).with_max_line_length(MESSAGE_BYTES_MAX);
    let running = match serve_server(Server(backend), transport).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            let message = "the client did not begin with `initialize`";
            return Err(Problem::new(ErrorCode::InvalidArgument, message)
                .hint("start `campanile mcp` from a client of the Model Context Protocol"));
        }
        Err(error) => {
            let message = format!("the client cannot be served: {error}");
            return Err(Problem::new(ErrorCode::Failed, message));
        }
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => {
            Err(Problem::new(ErrorCode::Internal, error))
        }
        Ok(_) => Ok(()),
    }
}
