//! `campanile token`: the tokens with which people and programs prove who they are.

use std::time::Duration;

use clap::Subcommand;

use crate::output::{self, Record, Result};
use crate::{Common, Limit, approval_key, watch};
use campanile_control::orders::tokens::RevokeToken;
use campanile_control::token_admin::{self, CreatedToken, TokenReport, WantedToken};
use campanile_model::access::Role;
use campanile_model::namespace::Namespace;
use campanile_model::text;
use campanile_server::bodies;
use campanile_store::Tx;

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Create a token, and print its secret, which is shown only once
    Create {
        /// The token's name, under which its changes are recorded
        name: String,
        /// What it may do: viewer, operator, editor, approver or admin; each may do what those before it may
        #[arg(long, value_name = "ROLE", value_parser = Role::read)]
        role: Role,
        /// The only namespace that it sees; without it the token sees the whole installation
        #[arg(long, value_name = "NAME", value_parser = str::parse::<Namespace>)]
        namespace: Option<Namespace>,
        /// Refuse the token after this time, such as 90d; without it the token does not expire
        #[arg(long, value_name = "SPAN", value_parser = text::duration)]
        expires: Option<Duration>,
    },
    /// List the tokens by name, with their last use
    #[command(arg = watch::arg())]
    List {
        /// List also the tokens that are revoked
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        limit: Limit,
    },
    /// Refuse a token from now on; its name is then free again
    Revoke {
        /// The token's name
        name: String,
    },
}

impl Record for TokenReport {
    const LIST: &'static str =
        "name role namespace state created_at expires_at last_used_at revoked_at";
}

impl Record for CreatedToken {
    fn print(&self) -> Result {
        let (row, secret) = (&self.token.row, &self.secret);
        let namespace = row.namespace.as_ref();
        let namespace = namespace.map(|namespace| format!(" in the namespace {namespace}"));
        let end = row.expires_at.map(|end| format!(" until {end}"));
        output::print_message!(
            "created the token {} with the role {}{}{}; its secret is shown only now",
            row.name,
            row.role,
            namespace.unwrap_or_default(),
            end.unwrap_or_default()
        );
        output::print_line(secret)
    }
}

impl Token {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Token::Create {
                name,
                role,
                namespace,
                expires,
            } => {
                if let Some(client) = common.client()? {
                    let expires = expires.map(text::duration_text);
                    let body = bodies::NewToken {
                        name,
                        role,
                        namespace,
                        expires,
                    };
                    let call = client.post(&["tokens"], &body)?;
                    return common.print(&call.send::<CreatedToken>().await?);
                }
                let wanted = WantedToken {
                    name: &name,
                    role,
                    namespace: namespace.as_ref(),
                    expires_in: expires,
                };
                let key = match token_admin::needs_seal(role) {
                    true => Some(approval_key::of_token(common).await?),
                    false => None,
                };
                let create = async |tx: &mut Tx, now| {
                    token_admin::create(tx, wanted, key.as_ref(), now).await
                };
                common.print(&common.change(create).await?)
            }
            Token::List { all, limit } => {
                if let Some(client) = common.client()? {
                    let call = client.get(&["tokens"]).flag("all", all);
                    let (tokens, _) = call.page::<TokenReport>(limit.limit).await?;
                    return common.print_list(&tokens);
                }
                let (mut tx, now) = common.read_with_time().await?;
                common.print_list(&token_admin::list(&mut tx, all, limit.limit, now).await?)
            }
            Token::Revoke { name } => {
                let token = common.order(&name, &RevokeToken::default(), "").await?;
                let text = format!("revoked the token {name}; hosts refuse it within 5 s");
                common.print_report(&token, &text)
            }
        }
    }
}
