//! Statements over many rows at once: hundreds of launches share one commit and one round trip.

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use super::Tx;

/// A statement with a `VALUES` list in its middle.
///
/// Both databases name the columns of such a list `column1`, `column2`, …, so one text serves both.
///
/// An update looks its rows up by id and checks the rest as `(…) = TRUE`. Written plainly, a guard
/// such as `status = 'running'` makes SQLite walk the whole table, or a partial index, and look each
/// row up in the list instead; the form is the same to Postgres.
pub(super) struct Batch {
    pub head: &'static str,
    /// Values a row.
    pub columns: usize,
    pub tail: &'static str,
}

/// Rows a statement. Few sizes, so that few statements are prepared; the greatest keeps the
/// number of bound values below the limit of SQLite, 32 766.
const SIZES: [usize; 9] = [256, 128, 64, 32, 16, 8, 4, 2, 1];

impl Batch {
    /// The statement for `rows` rows: the head, `($1,$2), ($3,$4) …`, the tail.
    ///
    /// On SQLite the places have no numbers: there a numbered place is a name, and looking up
    /// thousands of names takes longer than writing the rows.
    pub fn sql(&self, tx: &Tx, rows: usize) -> AssertSqlSafe<String> {
        self.write(rows, matches!(tx, Tx::Postgres(_)))
    }

    fn write(&self, rows: usize, numbered: bool) -> AssertSqlSafe<String> {
        let mut sql = String::with_capacity(
            self.head.len() + self.tail.len() + rows * (self.columns * 7 + 3),
        );
        sql.push_str(self.head);
        let mut place = 0;
        for row in 0..rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for column in 0..self.columns {
                place += 1;
                if column > 0 {
                    sql.push(',');
                }
                if numbered {
                    // Writing to a String cannot fail.
                    let _ = write!(sql, "${place}");
                } else {
                    sql.push('?');
                }
            }
            sql.push(')');
        }
        sql.push_str(self.tail);
        // Only constants and place numbers went in.
        AssertSqlSafe(sql)
    }
}

/// Cut `items` into pieces of the sizes above.
pub(super) fn pieces<T>(items: &[T]) -> impl Iterator<Item = &[T]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rest.len())?;
        let (piece, more) = rest.split_at(size);
        rest = more;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_through_all_rows() {
        let batch = Batch {
            head: "INSERT INTO t VALUES ",
            columns: 2,
            tail: " RETURNING a",
        };
        assert_eq!(
            batch.write(3, true).0,
            "INSERT INTO t VALUES ($1,$2), ($3,$4), ($5,$6) RETURNING a"
        );
        assert_eq!(
            batch.write(2, false).0,
            "INSERT INTO t VALUES (?,?), (?,?) RETURNING a"
        );
    }

    #[test]
    fn pieces_cover_everything_in_order() {
        let items: Vec<usize> = (0..345).collect();
        let sizes: Vec<usize> = pieces(&items).map(<[usize]>::len).collect();
        assert_eq!(sizes, [256, 64, 16, 8, 1]);
        assert_eq!(pieces(&items).flatten().copied().collect::<Vec<_>>(), items);
        assert_eq!(pieces::<usize>(&[]).count(), 0);
    }
}
