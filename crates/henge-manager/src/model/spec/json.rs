//! A specification as JSON, and its description: terms of henge-core's table stand beside the fields.

use super::{DiskSpec, Terms};
use henge_api::typed;
use henge_core::Term;
use serde::{Deserialize, Serialize};

// The terms of the table that have no field here go beside those that have.
impl Serialize for DiskSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all =
            DiskSpec::serialize(self, serde_json::value::Serializer).map_err(serde::ser::Error::custom)?;
        for (key, text) in &self.amounts {
            all[key] = typed(key, text).map_err(serde::ser::Error::custom)?;
        }
        all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DiskSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<DiskSpec, D::Error> {
        use serde::de::Error;
        let mut all = serde_json::Map::deserialize(deserializer)?;
        let mut amounts = Terms::new();
        for term in Term::plain() {
            let text = match (all.remove(term.key), term.written.is_number()) {
                (None | Some(serde_json::Value::Null), _) => continue,
                (Some(serde_json::Value::String(text)), false) => text,
                (Some(serde_json::Value::Number(n)), true) => n.to_string(),
                (Some(other), _) => {
                    return Err(D::Error::custom(format!(
                        "{}: write it like {}, not {other}",
                        term.key, term.example
                    )));
                }
            };
            amounts.insert(term.key.to_owned(), text);
        }
        let spec = DiskSpec::deserialize(serde_json::Value::Object(all)).map_err(D::Error::custom)?;
        Ok(DiskSpec { amounts, ..spec })
    }
}

/// Properties of a disk in the API's description that the table has, and no field.
pub(crate) fn describe(document: &mut utoipa::openapi::OpenApi) {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
    let schemas = document.components.iter_mut().flat_map(|components| &mut components.schemas);
    for (_, schema) in schemas.filter(|(name, _)| ["DiskSpec", "DiskPatch"].contains(&name.as_str())) {
        let RefOr::T(Schema::Object(disk)) = schema else { continue };
        for term in Term::plain() {
            let object = ObjectBuilder::new().description(Some(format!("{}.", capital(term.help))));
            let number = term.written.is_number();
            let kind = if number { Type::Integer } else { Type::String };
            let object = object.schema_type(SchemaType::Array(vec![kind, Type::Null]));
            let object = match number {
                true => object.minimum(Some(1)),
                false => object.examples([term.example]).max_length(Some(64)),
            };
            disk.properties.insert(term.key.to_owned(), object.build().into());
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
