//! Asking and changing an installation, in its database or over the API of a host.

use std::io::{self, IsTerminal as _};

use crate::client::Client;
use crate::commands::serve;
use crate::output::{self, Record, Result};
use crate::{Common, approval_key};
use campanile_control::bounds::{LIMIT_MAX, Number};
use campanile_control::order::{self, Desk, Order};
use campanile_control::question::{Page, Paged, Question};
use campanile_control::settings::Settings;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::trace_context::TraceContext;
use campanile_store::{Db, Tx};

/// Where the record is read.
pub(crate) struct Source<'c> {
    place: Place<'c>,
    /// The database's time, or this machine's for an API.
    pub now: Timestamp,
}

enum Place<'c> {
    Api(&'c Client),
    Record { db: Db, settings: Box<Settings> },
}

/// Who gives an order, and what they know.
#[derive(Clone, Copy, Default)]
pub(crate) struct Giver<'a> {
    /// Name for the record; hosts record the token's instead.
    pub by: &'a str,
    /// Trace span of the caller.
    pub caller: Option<TraceContext>,
    /// The schedule's revision, for orders checking it.
    pub revision: Option<i64>,
}

impl<'a> From<&'a str> for Giver<'a> {
    fn from(by: &'a str) -> Giver<'a> {
        Giver {
            by,
            ..Giver::default()
        }
    }
}

/// The first entries of a list.
pub(crate) struct Listed<R> {
    pub rows: Vec<R>,
    /// Key of the next entries, if there may be some.
    pub next: Option<String>,
    /// Whether a search ended at its bound, with rows left to look at.
    pub is_cut: bool,
}

impl Source<'_> {
    /// Begins a read transaction, unless asking a host.
    pub(crate) async fn record(&self) -> Result<Option<Tx>> {
        match &self.place {
            Place::Api(_) => Ok(None),
            Place::Record { db, .. } => Ok(Some(db.read_long().await?)),
        }
    }

    /// Asks a question, getting one page of the answer. `of` is the value of the path's parameter.
    ///
    /// Each page has a transaction of its own, since printing one may take long.
    pub(crate) async fn page<Q: Question>(
        &self,
        of: &str,
        question: &Q,
    ) -> Result<Page<Q::Answer>> {
        match &self.place {
            Place::Api(client) => client.ask(of, question).await,
            Place::Record { db, settings } => {
                let desk = Desk::of("", self.now, settings);
                Ok(question.ask(of, &desk, &mut db.read_long().await?).await?)
            }
        }
    }

    /// Reads the pages of an answer, passing each one on until `each` returns false.
    pub(crate) async fn pages<Q: Paged>(
        &self,
        of: &str,
        mut question: Q,
        mut each: impl FnMut(Q::Answer) -> Result<bool>,
    ) -> Result {
        loop {
            let page = self.page(of, &question).await?;
            let goes_on = each(page.answer)?;
            match page.next.filter(|_| goes_on) {
                Some(next) => question.resume_after(&next)?,
                None => return Ok(()),
            }
        }
    }

    /// Reads up to `limit` entries of a list, whose pages may be shorter than asked for.
    pub(crate) async fn list<Q, R>(&self, mut question: Q, limit: i64) -> Result<Listed<R>>
    where
        Q: Paged<Answer = Vec<R>>,
    {
        let mut rows = Vec::new();
        loop {
            let wanted = (limit - rows.len() as i64).min(LIMIT_MAX);
            question.limit_to(Number(wanted));
            let page = self.page("", &question).await?;
            let is_short = (page.answer.len() as i64) < wanted;
            let ends = page.answer.is_empty() || (Q::IS_SEARCH && is_short);
            rows.extend(page.answer);
            let is_cut = Q::IS_SEARCH && is_short && page.next.is_some();
            match page.next {
                Some(next) if !ends && (rows.len() as i64) < limit => {
                    question.resume_after(&next)?
                }
                next => return Ok(Listed { rows, next, is_cut }),
            }
        }
    }
}

/// Continues a question with a key that came with its answer.
trait Resume {
    fn resume_after(&mut self, key: &str) -> Result;
}

impl<Q: Paged> Resume for Q {
    fn resume_after(&mut self, key: &str) -> Result {
        self.continue_after(key).map_err(output::Failure::failed)
    }
}

impl Common {
    /// Opens the database, or returns the API to ask instead.
    pub(crate) async fn source(&self) -> Result<Source<'_>> {
        if let Some(client) = self.client()? {
            return Ok(Source {
                place: Place::Api(client),
                now: Clock::system().now(),
            });
        }
        let settings = Box::new(serve::settings(&self.config()?));
        let (db, clock) = self.open_with_clock().await?;
        Ok(Source {
            place: Place::Record { db, settings },
            now: clock.now(),
        })
    }

    /// Asks a question. `of` is the value of the path's parameter.
    pub(crate) async fn ask<Q: Question>(&self, of: &str, question: &Q) -> Result<Q::Answer> {
        Ok(self.source().await?.page(of, question).await?.answer)
    }

    /// Prints the answer to a question.
    pub(crate) async fn print_answer<Q: Question<Answer: Record>>(
        &self,
        of: &str,
        question: &Q,
    ) -> Result {
        self.print(&self.ask(of, question).await?)
    }

    /// Prints up to `limit` entries of a list.
    pub(crate) async fn print_some<Q, R: Record>(&self, question: Q, limit: i64) -> Result
    where
        Q: Paged<Answer = Vec<R>>,
    {
        self.print_listed(&self.source().await?.list(question, limit).await?)
    }

    /// Prints a list, and on a terminal how to get the rest.
    pub(crate) fn print_listed<R: Record>(&self, listed: &Listed<R>) -> Result {
        self.print_list(&listed.rows)?;
        if let Some(next) = &listed.next
            && io::stderr().is_terminal()
        {
            output::print_message!("for the next entries, add `--after {next}`");
        }
        Ok(())
    }

    /// Runs an order on the database, or sends it to the host given by `--server`. `of` is the value of the path's parameter.
    pub(crate) async fn order<O: Order>(
        &self,
        of: &str,
        order: &O,
        giver: impl Into<Giver<'_>>,
    ) -> Result<O::Output> {
        let Giver {
            by,
            caller,
            revision,
        } = giver.into();
        if let Some(client) = self.client()? {
            return client.order(of, order, caller, revision).await;
        }
        let key = if order.seals() {
            Some(approval_key::of_command(self).await?)
        } else {
            None
        };
        let settings = serve::settings(&self.config()?);
        let (db, clock) = self.open_with_clock().await?;
        let desk = Desk {
            caller,
            key: key.as_ref(),
            revision,
            ..Desk::of(by, clock.now(), &settings)
        };
        Ok(order::run(&db, of, order, &desk).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use campanile_control::bounds::Limit;
    use campanile_control::order::{Endpoint, Scope};
    use campanile_control::question::Read;

    /// A list of numbers.
    #[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
    struct Numbers<const IS_SEARCH: bool> {
        status: Vec<String>,
        after: Option<i64>,
        limit: Option<Limit>,
    }

    impl<const IS_SEARCH: bool> Question for Numbers<IS_SEARCH> {
        type Answer = Vec<i64>;

        const ENDPOINT: Endpoint = Endpoint::get("numbers", "/a", Scope::Nothing, "List numbers");

        async fn ask(&self, _: &str, _: &Desk<'_>, _: &mut Tx) -> Read<Self::Answer> {
            Ok(vec![].into())
        }
    }

    impl<const IS_SEARCH: bool> Paged for Numbers<IS_SEARCH> {
        const IS_SEARCH: bool = IS_SEARCH;

        fn continue_after(&mut self, key: &str) -> Result<(), String> {
            self.after = Some(key.parse().unwrap());
            Ok(())
        }

        fn limit_to(&mut self, limit: Limit) {
            self.limit = Some(limit);
        }
    }

    /// Lists numbers of a host answering with `pages`, returning the requested paths too.
    async fn list<const IS_SEARCH: bool>(
        pages: Vec<(String, Option<&'static str>)>,
        limit: i64,
    ) -> (Listed<i64>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(address.parse().unwrap(), None);
        let served = tokio::task::spawn_blocking(move || serve(&listener, &pages));
        let source = Source {
            place: Place::Api(&client),
            now: Clock::system().now(),
        };
        let question = Numbers::<IS_SEARCH> {
            status: vec!["failed".to_owned(), "lost".to_owned()],
            ..Numbers::default()
        };
        let listed = source.list(question, limit).await.unwrap();
        (listed, served.await.unwrap())
    }

    /// Answers a request with each page, returning the requested paths.
    fn serve(listener: &TcpListener, pages: &[(String, Option<&str>)]) -> Vec<String> {
        let mut paths = Vec::new();
        for (body, next) in pages {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            lines.find(|line| line.as_ref().unwrap().is_empty());
            paths.push(first.split(' ').nth(1).unwrap().to_owned());
            let link = next.map(|key| format!("link: </a?after={key}>; rel=\"next\"\r\n"));
            let (link, length) = (link.unwrap_or_default(), body.len());
            write!(
                stream,
                "HTTP/1.1 200 OK\r\n{link}content-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
        }
        paths
    }

    #[tokio::test]
    async fn a_long_list_is_read_page_by_page() {
        let rows = |from: i64, to: i64| format!("{:?}", Vec::from_iter(from..to));
        let pages = vec![
            (rows(0, 500), Some("499")),
            // Short because of large entries.
            (rows(500, 900), Some("899")),
            (rows(900, 1_200), Some("1199")),
        ];
        let (listed, paths) = list::<false>(pages, 1_200).await;
        assert_eq!(listed.rows, Vec::from_iter(0..1_200));
        assert_eq!(listed.next.as_deref(), Some("1199"));
        assert!(!listed.is_cut);
        let paths_expected = [
            "/a?status=failed%2Clost&limit=500",
            "/a?status=failed%2Clost&after=499&limit=500",
            "/a?status=failed%2Clost&after=899&limit=300",
        ];
        assert_eq!(paths, paths_expected);
    }

    #[tokio::test]
    async fn a_search_ends_with_a_short_page() {
        let (listed, paths) = list::<true>(vec![("[1, 2]".to_owned(), Some("2"))], 10).await;
        assert_eq!(
            (listed.rows, listed.next.as_deref()),
            (vec![1, 2], Some("2"))
        );
        assert!(listed.is_cut);
        assert_eq!(paths, ["/a?status=failed%2Clost&limit=10"]);
    }
}
