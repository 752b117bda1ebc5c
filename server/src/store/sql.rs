//! What all queries share: errors with their operation, documents, words, and filters that are put together.

use std::fmt::Display;

use engine::ids::TaskId;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{
    Any, AssertSqlSafe, Decode, Encode, Row, Type,
    any::{AnyArguments, AnyRow},
    query::Query,
};

use super::StoreError;

/// Names the operation that failed.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Query { doing, source })
    }
}

/// A column of a row.
pub(super) fn get<'r, T>(row: &'r AnyRow, column: &'static str) -> Result<T, StoreError>
where
    T: Decode<'r, Any> + Type<Any>,
{
    row.try_get(column).doing("reading a column")
}

/// A document as text.
pub(super) fn to_doc<T: Serialize>(what: &'static str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Unwritable { what, source: source.into() })
}

/// A document from its text.
pub(super) fn from_doc<T: DeserializeOwned>(
    what: &'static str,
    id: impl Display,
    text: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Unreadable {
        what,
        id: id.to_string(),
        source: source.into(),
    })
}

/// A variant as its one word in the API and in a column.
pub(super) fn to_word<T: Serialize>(what: &'static str, value: &T) -> Result<String, StoreError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        Ok(other) => {
            Err(StoreError::Unwritable { what, source: anyhow::anyhow!("`{other}` is not one word") })
        }
        Err(source) => Err(StoreError::Unwritable { what, source: source.into() }),
    }
}

/// A variant, or an id, from its word.
pub(super) fn from_word<T: DeserializeOwned>(what: &'static str, word: String) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::String(word.clone())).map_err(|source| StoreError::Unreadable {
        what,
        id: word,
        source: source.into(),
    })
}

/// A count or a step as a column; beyond the column's range it stays at its end.
pub(super) fn big(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count from a column; a negative one, which nothing writes, is 0.
pub(super) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A number from a column that holds a `u32`; anything else, which nothing writes, is 0.
pub(super) fn number(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The number of an attempt as a column.
pub(super) fn attempt_number(task_id: &TaskId) -> Result<i64, StoreError> {
    task_id.number().map(i64::from).ok_or_else(|| StoreError::Unwritable {
        what: "a record",
        source: anyhow::anyhow!("the task id `{task_id}` has no number"),
    })
}

/// A pattern of `LIKE` that finds the text anywhere, with `\` as its escape.
pub(super) fn anywhere(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// A query whose conditions depend on what was asked. Only texts of this program become SQL; what people typed is bound.
/// sqlx's own builder writes `?`, which Postgres does not take.
#[derive(Default)]
pub(super) struct Sql {
    text: String,
    arguments: AnyArguments,
    bound: usize,
}

impl Sql {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    pub(super) fn push(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    /// Appends `text` and a placeholder for `value`.
    pub(super) fn bind<T>(&mut self, text: &'static str, value: T) -> Result<(), StoreError>
    where
        T: Encode<'static, Any> + Type<Any>,
    {
        use sqlx::Arguments;
        self.arguments.add(value).map_err(|source| StoreError::Unwritable {
            what: "a condition",
            source: anyhow::Error::from_boxed(source),
        })?;
        self.bound += 1;
        self.text.push_str(text);
        self.text.push_str(&format!("${}", self.bound));
        Ok(())
    }

    pub(super) fn build(self) -> Query<'static, Any, AnyArguments> {
        sqlx::query_with(AssertSqlSafe(self.text), self.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_that_people_type_are_plain_text() {
        assert_eq!(anywhere(r"50%_a\b"), r"%50\%\_a\\b%");
    }

    #[test]
    fn placeholders_are_numbered_in_order() {
        let mut sql = Sql::new("SELECT 1 WHERE 1 = 1");
        sql.bind(" AND a = ", 1_i64).unwrap();
        sql.bind(" AND b = ", "x".to_owned()).unwrap();
        sql.push(" LIMIT 1");
        assert_eq!(sql.text, "SELECT 1 WHERE 1 = 1 AND a = $1 AND b = $2 LIMIT 1");
    }
}
