//! A specification as JSON, and its description: terms of henge-core's table stand beside the fields.

use super::{DiskSpec, DiskTime, Terms};
use henge_api::typed;
use henge_core::Term;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What a tenant asks for: availability, bandwidth, capacity, delay, elasticity. Quantities carry their units.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Flat {
    /// C: how large.
    #[schema(example = "96GB", max_length = 64)]
    capacity: String,
    /// B: requests a second that it is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "675/s", max_length = 64)]
    rate: Option<String>,
    /// D: how long a request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "120ms", max_length = 64)]
    latency: Option<String>,
    /// E: how many percent of the requests are within the latency; 95 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 95.0, minimum = 0.0, maximum = 100.0)]
    percentile: Option<f64>,
    /// Most requests queued at once for which the latency is promised; 16 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 7, minimum = 1, maximum = 1048576)]
    pending: Option<u32>,
    /// A: copies that the storage behind it keeps; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    copies: Option<u32>,
    /// Over how many nodes it is striped; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    parts: Option<u32>,
    /// f: room for uneven load over the parts; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1.0, maximum = 100.0)]
    leeway: Option<f64>,
    /// Its share of what nobody reserved, relative to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000000)]
    weight: Option<u32>,
    /// The most it gets, even when nobody else wants anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2000/s", max_length = 64)]
    limit: Option<String>,
    /// Requests that may come at once on top of rate or limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "64", max_length = 64)]
    burst: Option<String>,
    /// A share of the disk time of each pool it lies on, in place of a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "25%", max_length = 64)]
    share: Option<String>,
    /// What goes with the share: "rent", "latency" or "throughput"; rent if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "rent", max_length = 64)]
    kind: Option<String>,
    /// What a share of kind "throughput" promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "900/s", max_length = 64)]
    throughput: Option<String>,
    /// How far below its throughput lending may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10%", max_length = 64)]
    tolerance: Option<String>,
}

impl From<DiskSpec> for Flat {
    fn from(spec: DiskSpec) -> Flat {
        // The terms of the table are added by who asks.
        let DiskSpec {
            capacity,
            rate,
            latency,
            percentile,
            pending,
            copies,
            parts,
            leeway,
            weight,
            limit,
            burst,
            disk_time,
            amounts: _,
        } = spec;
        let DiskTime { share, kind, throughput, tolerance } = disk_time;
        Flat {
            capacity,
            rate,
            latency,
            percentile,
            pending,
            copies,
            parts,
            leeway,
            weight,
            limit,
            burst,
            share,
            kind,
            throughput,
            tolerance,
        }
    }
}

impl Flat {
    fn with(self, amounts: Terms) -> DiskSpec {
        let Flat {
            capacity,
            rate,
            latency,
            percentile,
            pending,
            copies,
            parts,
            leeway,
            weight,
            limit,
            burst,
            share,
            kind,
            throughput,
            tolerance,
        } = self;
        let disk_time = DiskTime { share, kind, throughput, tolerance };
        DiskSpec {
            capacity,
            rate,
            latency,
            percentile,
            pending,
            copies,
            parts,
            leeway,
            weight,
            limit,
            burst,
            disk_time,
            amounts,
        }
    }
}

impl PartialSchema for DiskSpec {
    fn schema() -> RefOr<Schema> {
        Flat::schema()
    }
}

impl ToSchema for DiskSpec {}

// The terms of the table that have no field here go beside those that have.
impl Serialize for DiskSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serde_json::to_value(Flat::from(self.clone())).map_err(serde::ser::Error::custom)?;
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
        let flat = Flat::deserialize(serde_json::Value::Object(all)).map_err(D::Error::custom)?;
        Ok(flat.with(amounts))
    }
}

/// Properties of a disk in the API's description that the table has, and no field.
pub(crate) fn describe(document: &mut utoipa::openapi::OpenApi) {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
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
