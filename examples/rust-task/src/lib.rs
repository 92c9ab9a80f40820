//! Counts words: a task with a context, an output, an error and a schedule.

use campanile_sdk::serde_json::json;
use campanile_sdk::{Error, Package, Result, Run, Schedule, Task};
use serde::{Deserialize, Serialize};

/// The context of a launch: the schedule sets it.
#[derive(Deserialize)]
struct Text {
    text: String,
}

/// The output: the host records it.
#[derive(Serialize)]
struct Count {
    words: usize,
}

fn count_words(run: &Run, context: Text) -> Result<Count> {
    let words = context.text.split_whitespace().count();
    if words == 0 {
        return Err(Error::permanent("`text` has no words in it"));
    }
    run.info(format!(
        "{words} words for the slot {}",
        run.original_scheduled_time()
    ));
    Ok(Count { words })
}

fn package() -> Package {
    Package::new("rust-task", env!("CARGO_PKG_VERSION"))
        .summary("Counts words")
        .task(Task::new("count", count_words))
        .schedule(Schedule::cron("*/5 * * * *").context(json!({"text": "for whom the bell tolls"})))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted() {
        let run = Run::fake().at("2026-11-21T08:00:00Z").build();
        let text = "to be or not".to_owned();
        let count = count_words(&run, Text { text }).unwrap();
        assert_eq!(count.words, 4);
        assert_eq!(
            run.logs()[0].message,
            "4 words for the slot 2026-11-21T08:00:00Z"
        );
    }

    #[test]
    fn a_text_without_words_fails_for_good() {
        let run = Run::fake().build();
        let error = count_words(&run, Text { text: " ".into() }).err().unwrap();
        assert!(!error.is_retryable());
    }
}
