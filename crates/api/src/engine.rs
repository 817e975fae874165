//! The one function: a question in, an answer out.

use crate::error::ApiError;
use crate::question::{
    Advise, Compare, Delta, Designs, Explore, Generate, GpuQuestion, Layer, Nothing, Parallel, Plan, Predict,
    Roofline, Scale,
};
use crate::{
    advise, catalogue, cluster, compare, delta, design, document, explore, generate, job, layer, predict,
    roofline,
};
use preflop_core::Gpu;
use preflop_core::cost::Catalogue;
use preflop_core::gpu::catalog;
use preflop_core::schedule::host;
use preflop_core::time::TimeModel;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// The questions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Predict,
    Advise,
    Layer,
    Compare,
    Roofline,
    Generate,
    Parallel,
    Plan,
    Scale,
    Explore,
    Design,
    Delta,
    Gpus,
    Gpu,
    Models,
    Networks,
    Nodes,
    Accuracy,
    Version,
}

impl Kind {
    /// All, in the order of the document.
    pub const ALL: [Self; 19] = [
        Self::Predict,
        Self::Advise,
        Self::Layer,
        Self::Compare,
        Self::Roofline,
        Self::Generate,
        Self::Parallel,
        Self::Plan,
        Self::Scale,
        Self::Explore,
        Self::Design,
        Self::Delta,
        Self::Gpus,
        Self::Gpu,
        Self::Models,
        Self::Networks,
        Self::Nodes,
        Self::Accuracy,
        Self::Version,
    ];

    /// The name in addresses and in `ask`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Advise => "advise",
            Self::Layer => "layer",
            Self::Compare => "compare",
            Self::Roofline => "roofline",
            Self::Generate => "generate",
            Self::Parallel => "parallel",
            Self::Plan => "plan",
            Self::Scale => "scale",
            Self::Explore => "explore",
            Self::Design => "design",
            Self::Delta => "delta",
            Self::Gpus => "gpus",
            Self::Gpu => "gpu",
            Self::Models => "models",
            Self::Networks => "networks",
            Self::Nodes => "nodes",
            Self::Accuracy => "accuracy",
            Self::Version => "version",
        }
    }

    /// Does it take no fields?
    pub fn is_plain(self) -> bool {
        matches!(
            self,
            Self::Gpus | Self::Models | Self::Networks | Self::Nodes | Self::Accuracy | Self::Version
        )
    }

    /// The question of that name.
    pub fn from_name(name: &str) -> Result<Self, ApiError> {
        Self::ALL.into_iter().find(|k| k.name() == name).ok_or_else(|| ApiError::Question {
            name: name.chars().take(40).collect(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// Makes the scoreboard: a JSON document, or why there is none.
pub type Scoreboard = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Everything that answers need, made once and shared by all threads.
pub struct Engine {
    pub(crate) model: TimeModel,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) prices: Catalogue,
    pub(crate) jobs: job::Memory,
    scoreboard: Option<Scoreboard>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("gpus", &self.gpus.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine with the data that ship with the tool. The scoreboard takes a while to make, so the shell says how
    /// and keeps it.
    pub fn new(scoreboard: Option<Scoreboard>) -> Result<Self, ApiError> {
        let internal = |message: String| ApiError::Internal { message };
        Ok(Self {
            model: TimeModel::embedded(),
            gpus: catalog::all().map_err(|e| internal(e.to_string()))?,
            prices: Catalogue::embedded().map_err(|e| internal(e.to_string()))?,
            jobs: job::Memory::default(),
            scoreboard,
        })
    }

    /// The same engine for a server, where many questions come: what was learned is asked once for calls that come again. It takes 40 MB.
    #[must_use]
    pub fn for_many(self) -> Self {
        Self { model: self.model.with_recall(), ..self }
    }

    /// A question as JSON with its name in `ask`, answered as JSON. Errors are answers too: `{"error": {..}}`.
    pub fn ask(&self, question: &str) -> String {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_str(question);
        let answer = parsed.map_err(ApiError::from).and_then(|mut fields| {
            let name = fields.remove("ask");
            let name = name
                .as_ref()
                .and_then(Value::as_str)
                .ok_or_else(|| ApiError::Malformed { detail: "`ask` must name the question".to_string() })?;
            self.answer(Kind::from_name(name)?, fields)
        });
        answer.unwrap_or_else(|error| error.json())
    }

    /// Answers a question of a known kind.
    pub fn answer(&self, kind: Kind, fields: Map<String, Value>) -> Result<String, ApiError> {
        document::check_fields(kind, &fields)?;
        match kind {
            Kind::Predict => predict::answer(self, &parse::<Predict>(fields)?),
            Kind::Advise => text(&advise::answer(self, &parse::<Advise>(fields)?)?),
            Kind::Layer => text(&layer::answer(self, &parse::<Layer>(fields)?)?),
            Kind::Compare => text(&compare::answer(self, &parse::<Compare>(fields)?)?),
            Kind::Roofline => text(&roofline::answer(self, &parse::<Roofline>(fields)?)?),
            Kind::Generate => text(&generate::answer(self, &parse::<Generate>(fields)?)?),
            Kind::Parallel => text(&cluster::parallel::answer(self, &parse::<Parallel>(fields)?)?),
            Kind::Plan => text(&cluster::plan::answer(self, &parse::<Plan>(fields)?)?),
            Kind::Scale => text(&cluster::scale::answer(self, &parse::<Scale>(fields)?)?),
            Kind::Explore => text(&explore::answer(self, &parse::<Explore>(fields)?)?),
            Kind::Design => text(&design::answer(self, &parse::<Designs>(fields)?)?),
            Kind::Delta => text(&delta::answer(self, &parse::<Delta>(fields)?)?),
            Kind::Gpu => text(&self.gpu_in_full(&parse::<GpuQuestion>(fields)?.gpu)?),
            plain => {
                parse::<Nothing>(fields)?;
                self.plain(plain)
            }
        }
    }

    fn plain(&self, kind: Kind) -> Result<String, ApiError> {
        match kind {
            Kind::Gpus => text(&self.gpu_list()),
            Kind::Models => text(&catalogue::models()),
            Kind::Nodes => text(&cluster::nodes()?),
            Kind::Networks => text(&preflop_core::delta::networks::NAMES),
            Kind::Accuracy => match &self.scoreboard {
                Some(make) => make().map_err(|message| ApiError::Internal { message }),
                None => Err(ApiError::invalid("there is no scoreboard here")),
            },
            _ => text(&serde_json::json!({ "name": "preflop", "version": env!("CARGO_PKG_VERSION") })),
        }
    }

    /// The model for jobs on the host that is said, and how many times as long as the usual one that takes.
    pub(crate) fn on_host(&self, said: Option<&str>) -> Result<Cow<'_, TimeModel>, ApiError> {
        let Some(said) = said else { return Ok(Cow::Borrowed(&self.model)) };
        let factor = host::said(said).map_err(|e| ApiError::invalid(e.to_string()))?;
        Ok(Cow::Owned(self.model.clone().with_host_factor(factor)))
    }

    /// A GPU of the catalogue by name or alias.
    pub(crate) fn gpu(&self, name: &str) -> Result<&Gpu, ApiError> {
        if let Some(gpu) = self.gpus.iter().find(|g| g.name == name) {
            return Ok(gpu);
        }
        let found = catalog::find(name)?.name;
        self.gpus
            .iter()
            .find(|g| g.name == found)
            .ok_or_else(|| ApiError::Internal { message: format!("`{found}` is not in the catalogue") })
    }

    /// GPUs by name, each once; all of the catalogue without names.
    pub(crate) fn some_gpus(&self, names: Option<&[String]>) -> Result<Vec<&Gpu>, ApiError> {
        let Some(names) = names else { return Ok(self.gpus.iter().collect()) };
        let most = crate::question::MAX_GPUS;
        if names.is_empty() || names.len() > most {
            return Err(ApiError::invalid(format!("`gpus` takes 1 to {most} names, not {}", names.len())));
        }
        let mut gpus: Vec<&Gpu> = Vec::new();
        for name in names {
            let gpu = self.gpu(name)?;
            if gpus.iter().all(|g| g.name != gpu.name) {
                gpus.push(gpu);
            }
        }
        Ok(gpus)
    }
}

fn parse<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, ApiError> {
    Ok(serde_json::from_value(Value::Object(fields))?)
}

pub(crate) fn text(answer: &impl Serialize) -> Result<String, ApiError> {
    serde_json::to_string(answer).map_err(|e| ApiError::Internal { message: format!("no JSON: {e}") })
}
