//! The version of the form in which chains are stored.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Raised with every change of the form that a program which knows the form before would read wrongly, or not at all.
const NEWEST: u32 = 1;

/// Stands for the version that this program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(NEWEST)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            NEWEST => Ok(Self),
            other => Err(de::Error::custom(format!(
                "it is stored in version {other} and this program reads version {NEWEST}: run the Holdfast that wrote it, or a newer one"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::chain::{Chain, testing};

    #[test]
    fn a_chain_of_a_newer_program_is_refused_with_the_reason() {
        let world = testing::World::new(testing::spec(1));
        let stored = serde_json::to_string(&world.chain).unwrap();
        assert!(stored.starts_with(r#"{"version":1,"#), "{stored}");
        // Told before anything else of it is read, which may have changed.
        let newer = stored.replace(r#""version":1,"#, r#""version":2,"#).replace("attempt", "trial");
        let error = serde_json::from_str::<Chain>(&newer).unwrap_err().to_string();
        assert!(error.contains("stored in version 2 and this program reads version 1"), "{error}");
    }
}
