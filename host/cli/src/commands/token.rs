//! `campanile token`: the tokens with which people and programs prove who they are.

use clap::Subcommand;

use crate::output::{self, Record, Result};
use crate::{Common, watch};
use campanile_control::admin::token_admin::{CreatedToken, TokenReport};
use campanile_control::orders::tokens::{NewToken, RevokeToken};
use campanile_control::questions::hosts::ListTokens;

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Create a token, and print its secret, which is shown only once
    Create(NewToken),
    /// List the tokens by name, with their last use
    #[command(arg = watch::arg())]
    List(ListTokens),
    /// Refuse a token from now on; its name is then free again
    Revoke {
        /// The token's name
        name: String,
    },
}

impl Record for TokenReport {
    const LIST: &'static str =
        "name role namespace state created_at expires_at last_used_at revoked_at";
    const DECIDING: &'static str = "role state expires_at";
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
            Token::Create(order) => common.print(&common.order("", &order, "").await?),
            Token::List(question) => common.print_list(&common.ask("", &question).await?),
            Token::Revoke { name } => {
                let token = common.order(&name, &RevokeToken::default(), "").await?;
                let text = format!("revoked the token {name}; hosts refuse it within 5 s");
                common.print_report(&token, &text)
            }
        }
    }
}
