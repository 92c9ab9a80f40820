//! `campanile mcp`: a server of the Model Context Protocol on stdin and stdout, for assistants.
//!
//! ```text
//! stdin ─▶ serve_stdio ─▶ Local ── Call ──▶ Mcp::run, one call at a time ── answers ──▶ database
//!                     └─▶ Remote ── POST /mcp ──▶ the host of --server
//! ```
//!
//! An answer is the JSON that the command of the same meaning prints with `--json`. Stdout has the messages of the protocol
//! alone; the log goes to stderr. This server starts no host and opens no port.

mod answers;
mod remote;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::{Map, Value};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::Common;
use crate::output::{ErrorCode, Failure, Result};
use crate::telemetry::{self, LogFormat};
use campanile_control::problem::Problem;
use campanile_model::access::{Channel, Role};
use campanile_server::mcp::{Answer, Backend, Tool, serve_stdio};
use remote::Remote;

/// The most calls that wait.
const WAITING_MAX: usize = 64;

type JsonObject = Map<String, Value>;

#[derive(Args)]
pub(crate) struct Mcp {
    /// What the assistant may do: read everything, or also trigger, pause and resume schedules and cancel launches. With
    /// --server, the role of the token bounds it too
    #[arg(long, value_name = "ROLE", default_value = "viewer")]
    #[arg(value_parser = PossibleValuesParser::new(["viewer", "operator"]).try_map(|word| Role::read(&word)))]
    role: Role,
}

/// A call of a tool that waits for its answer.
struct Call {
    tool: Tool,
    arguments: JsonObject,
    /// What the client calls itself.
    by: String,
    answer: oneshot::Sender<Result<Answer>>,
}

/// What answers from the database. It runs on any thread, and hands calls to the task of the command.
struct Local {
    role: Role,
    calls: mpsc::Sender<Call>,
}

impl Mcp {
    pub(crate) async fn run(self, common: &Common) -> Result {
        telemetry::init(LogFormat::Human, false).map_err(Failure::misconfigured)?;
        // A client shows its user why a server does not start.
        if let Some(client) = common.client()? {
            let remote = Remote::new(client.clone(), self.role);
            remote.ping().await?;
            return Ok(serve_stdio(remote).await?);
        }
        common.open_as(Channel::Mcp).await?;
        let (calls, mut waiting) = mpsc::channel(WAITING_MAX);
        let local = Local {
            role: self.role,
            calls,
        };
        let served = tokio::spawn(serve_stdio(local));
        // It ends when the server ends, which has the only sender.
        while let Some(call) = waiting.recv().await {
            call.answer(common).await;
        }
        Ok(served.await.map_err(Failure::failed)??)
    }
}

impl Call {
    /// Run the tool, unless the client has cancelled the call.
    async fn answer(self, common: &Common) {
        if self.answer.is_closed() {
            return;
        }
        let (tool, by) = (self.tool, &self.by);
        let answer = answers::answer(common, tool, self.arguments, by).await;
        match &answer {
            Err(failure) => tracing::info!("{by}: {tool}: {}", failure.message),
            Ok(_) if tool.is_change() => tracing::info!("{by}: {tool}: done"),
            Ok(_) => tracing::debug!("{by}: {tool}: answered"),
        }
        // A client that has cancelled the call meanwhile wants no answer.
        let _ = self.answer.send(answer);
    }
}

/// Refuse a tool that the server was not started for.
fn require(role: Role, tool: Tool) -> Result<(), Problem> {
    if role.includes(tool.role()) {
        return Ok(());
    }
    let message = format!("`{tool}` needs the role `{}`", tool.role());
    let problem = Problem::new(ErrorCode::Refused, message);
    Err(problem.hint(format!(
        "a person can start `campanile mcp --role {}`",
        tool.role()
    )))
}

impl Backend for Local {
    fn role(&self) -> Role {
        self.role
    }

    /// Wait for the answer to a call.
    async fn answer(
        &self,
        tool: Tool,
        arguments: JsonObject,
        by: String,
    ) -> Result<Answer, Problem> {
        require(self.role, tool)?;
        let (answer, answered) = oneshot::channel();
        let call = Call {
            tool,
            arguments,
            by,
            answer,
        };
        let stopped = || Problem::new(ErrorCode::Unavailable, "the server is stopping");
        match self.calls.try_send(call) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                let message = format!("{WAITING_MAX} calls wait already");
                return Err(Problem::new(ErrorCode::Unavailable, message)
                    .hint("wait for their answers, then call again"));
            }
            Err(TrySendError::Closed(_)) => return Err(stopped()),
        }
        match answered.await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(stopped()),
        }
    }
}
