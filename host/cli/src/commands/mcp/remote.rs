//! `campanile mcp --server`: each call of a tool is sent to the host, which answers it for the token.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{JsonObject, require};
use crate::client::Client;
use crate::output::{ErrorCode, Result};
use campanile_control::problem::Problem;
use campanile_model::access::Role;
use campanile_server::mcp::{Answer, Backend, Tool};

/// What answers over HTTP.
pub(super) struct Remote {
    client: Client,
    role: Role,
}

/// The answer of the host to a message.
#[derive(Deserialize)]
struct Message {
    result: Option<CallResult>,
    error: Option<MessageError>,
}

/// The result of a call; empty for `ping`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CallResult {
    content: Vec<Block>,
    is_error: bool,
}

#[derive(Deserialize)]
struct Block {
    text: String,
}

#[derive(Deserialize)]
struct MessageError {
    message: String,
}

/// The error of a call.
#[derive(Deserialize)]
struct ErrorReport {
    error: String,
    hint: Option<String>,
    code: ErrorCode,
}

impl Remote {
    pub(super) fn new(client: Client, role: Role) -> Remote {
        Remote { client, role }
    }

    /// Check that the host answers, and accepts the token.
    pub(super) async fn ping(&self) -> Result {
        self.ask("ping", json!({})).await.map(drop)
    }

    async fn ask(&self, method: &str, params: Value) -> Result<CallResult> {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer: Message = self.client.mcp(&message)?.send().await?;
        let refused = |error: MessageError| Problem::new(ErrorCode::Failed, error.message);
        match answer.error.map(refused) {
            Some(problem) => Err(problem.into()),
            None => Ok(answer.result.unwrap_or_default()),
        }
    }
}

impl Backend for Remote {
    fn role(&self) -> Role {
        self.role
    }

    /// Send the call. The host records its token, and not what the client calls itself.
    async fn answer(
        &self,
        tool: Tool,
        arguments: JsonObject,
        by: String,
    ) -> Result<Answer, Problem> {
        require(self.role, tool)?;
        let params = json!({"name": tool.as_str(), "arguments": arguments});
        let CallResult { content, is_error } = self.ask("tools/call", params).await?;
        let mut texts = content.into_iter().map(|block| block.text);
        let json = texts.next().unwrap_or_default();
        if !is_error {
            tracing::debug!(%by, %tool, "answered a call");
            return Ok(Answer::of_host(json, texts.next()));
        }
        let report = serde_json::from_str(&json);
        let ErrorReport { error, hint, code } = report.unwrap_or(ErrorReport {
            error: json,
            hint: None,
            code: ErrorCode::Failed,
        });
        tracing::info!(%by, %tool, error, "refused a call");
        Err(Problem::new(code, error).hint(hint.unwrap_or_default()))
    }
}
