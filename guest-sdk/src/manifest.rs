//! The manifest of a package: the JSON that `describe` returns. Its schema is `wit/manifest.schema.json`.

use serde::Serialize;
use serde_json::Value;

use crate::request::Requests;
use crate::schedule::Schedule;

#[derive(Default, Serialize)]
pub(crate) struct Manifest {
    pub name: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub tasks: Vec<TaskManifest>,
    pub schedules: Vec<Schedule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_schema: Option<Value>,
    pub requests: Requests,
}

/// A task in the manifest.
#[derive(Serialize)]
pub(crate) struct TaskManifest {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub depends_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}
