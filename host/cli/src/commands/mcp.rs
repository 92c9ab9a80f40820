//! `campanile mcp`: a server of the Model Context Protocol on stdin and stdout, for assistants.
//!
//! ```text
//! stdin ─▶ serve_stdio ─▶ Local ── questions, orders ──▶ database
//!                     └─▶ Remote ── POST /mcp ──▶ the host of --server
//! ```
//!
//! An answer is the JSON that the command of the same meaning prints with `--json`. Stdout has the messages of the protocol
//! alone; the log goes to stderr. This server starts no host and opens no port.

mod remote;

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore};

use super::{plan, serve, stats};
use crate::Common;
use crate::config::Config;
use crate::output::{ErrorCode, Failure, Result};
use crate::telemetry::{self, LogFormat};
use campanile_control::order::{self, Desk, Order};
use campanile_control::problem::Problem;
use campanile_control::question::{Page, Question};
use campanile_control::reports::forecast::GetPlan;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::health::Health;
use campanile_control::settings::Settings;
use campanile_model::access::{Channel, Role};
use campanile_model::clock::{Clock, Timestamp};
use campanile_server::mcp::{Answer, Backend, Installation, Tool, answer, serve_stdio};
use campanile_store::Db;
use remote::Remote;

/// Maximum number of calls waiting or being answered.
const CALLS_MAX: usize = 64;

type JsonObject = Map<String, Value>;

#[derive(Args)]
pub(crate) struct Mcp {
    /// What the assistant may do: read everything, or also trigger, pause and resume schedules and cancel launches. With
    /// --server, the role of the token bounds it too
    #[arg(long, value_name = "ROLE", default_value = "viewer")]
    #[arg(value_parser = PossibleValuesParser::new(["viewer", "operator"]).try_map(|word| Role::read(&word)))]
    role: Role,
}

/// What answers from the database.
struct Local {
    role: Role,
    db: Db,
    clock: Clock,
    config: Config,
    settings: Settings,
    /// Held by the call being answered. Others wait, so that an assistant doesn't take all connections.
    turn: Mutex<()>,
    places: Semaphore,
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
        let (db, clock) = common.open_with_clock().await?;
        let config = common.config()?;
        Ok(serve_stdio(Local {
            role: self.role,
            db,
            clock,
            settings: serve::settings(&config),
            config,
            turn: Mutex::new(()),
            places: Semaphore::new(CALLS_MAX),
        })
        .await?)
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

    async fn answer(
        &self,
        tool: Tool,
        arguments: JsonObject,
        by: String,
    ) -> Result<Answer, Problem> {
        require(self.role, tool)?;
        let _place = self.places.try_acquire().map_err(|_| {
            let message = format!("{CALLS_MAX} calls wait already");
            Problem::new(ErrorCode::Unavailable, message)
                .hint("wait for their answers, then call again")
        })?;
        let _turn = self.turn.lock().await;
        let answer = answer(self, tool, arguments, &by).await;
        match &answer {
            Err(problem) => tracing::info!(%by, %tool, error = problem.message, "refused a call"),
            Ok(_) if tool.is_change() => tracing::info!(%by, %tool, "made a change"),
            Ok(_) => tracing::debug!(%by, %tool, "answered a call"),
        }
        answer
    }
}

impl Local {
    fn desk<'a>(&'a self, by: &'a str) -> Desk<'a> {
        Desk::of(by, self.now(), &self.settings)
    }
}

impl Installation for Local {
    async fn ask<Q: Question>(&self, of: &str, question: Q) -> Result<Page<Q::Answer>, Problem> {
        let mut tx = self.db.read_long().await?;
        question.ask(of, &self.desk(""), &mut tx).await
    }

    async fn order<O: Order>(&self, of: &str, order: O, by: &str) -> Result<O::Output, Problem> {
        order::run(&self.db, of, &order, &self.desk(by)).await
    }

    async fn plan(&self, plan: GetPlan) -> Result<PlanReport, Problem> {
        plan::forecast(&self.db, &self.settings, &plan, None, self.now()).await
    }

    async fn health(&self) -> Result<Health, Problem> {
        stats::read_health(&self.db, &self.clock, &self.config).await
    }

    fn calls_kept(&self) -> Option<Duration> {
        self.config.retention.logs
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
