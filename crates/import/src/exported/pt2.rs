//! `torch.export` archives (`.pt2`): a stored zip whose `models/model.json` lists every call with its tensors.

use super::expression::{evaluate, name as name_in};
use super::{Bindings, ExportedError, bounded_json};
use preflop_core::model::graph::Content;
use preflop_core::model::program::{Arg, Program, ProgramCall, ProgramValue, Role};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read, Seek};

/// Memory that the description of a network may take. It grows with the number of calls (about 7 kB for each), not with
/// the weights: 70,000 calls fit.
const MAX_DESCRIPTION: usize = 512 << 20;

/// Parts of the description that nothing here looks at; the stack of every call is most of it.
const DROPPED: &[&str] =
    &["stack_trace", "source_fn_stack", "from_node", "torch_fn", "module_call_graph", "guards_code"];

/// Reads an archive; `name` is the model's name in reports.
pub fn read_pt2(
    archive: impl Read + Seek,
    path: &str,
    name: &str,
    bindings: &Bindings,
) -> Result<Program, ExportedError> {
    let not = |detail: String| ExportedError::NotThat {
        file: path.to_owned(),
        what: "a torch.export archive",
        detail,
    };
    from_document(&model_json(archive).map_err(not)?, path, name, bindings)
}

/// Reads the description that an archive holds.
pub fn read_pt2_description(
    text: impl Read,
    path: &str,
    name: &str,
    bindings: &Bindings,
) -> Result<Program, ExportedError> {
    let what = "the description of a torch.export archive";
    let document = bounded_json::read(text, MAX_DESCRIPTION, DROPPED)
        .map_err(|detail| ExportedError::NotThat { file: path.to_owned(), what, detail })?;
    from_document(&document, path, name, bindings)
}

fn from_document(
    document: &Json,
    path: &str,
    name: &str,
    bindings: &Bindings,
) -> Result<Program, ExportedError> {
    let not = |detail: String| ExportedError::NotThat {
        file: path.to_owned(),
        what: "a torch.export archive",
        detail,
    };
    let module = &document["graph_module"];
    if !module["graph"]["nodes"].is_array() {
        return Err(not("its model.json has no graph".to_owned()));
    }
    Reader::new(module, path, bindings)?.program(name)
}

/// The description inside the archive, read to its end and held against its checksum.
fn model_json(archive: impl Read + Seek) -> Result<Json, String> {
    let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
    let archive = rawzip::ZipArchive::from_seekable(archive, &mut buffer).map_err(|e| e.to_string())?;
    let mut entries = archive.entries(&mut buffer);
    let mut found = None;
    while let Some(entry) = entries.next_entry().map_err(|e| e.to_string())? {
        let path = entry.file_path();
        let inside = String::from_utf8_lossy(path.as_ref()).into_owned();
        if inside.ends_with("models/model.json") || inside == "serialized_exported_program.json" {
            if entry.compression_method() != rawzip::CompressionMethod::STORE {
                return Err(format!("`{inside}` is compressed"));
            }
            found = Some(entry.wayfinder());
        }
    }
    let found = found.ok_or("it holds no models/model.json")?;
    let entry = archive.get_entry(found).map_err(|e| e.to_string())?;
    let mut text = BufReader::with_capacity(1 << 16, entry.verifying_reader(entry.reader()));
    let parsed = bounded_json::read(&mut text, MAX_DESCRIPTION, DROPPED);
    // The checksum is looked at when the last byte was read; it explains what else is wrong.
    match std::io::copy(&mut text, &mut std::io::sink()) {
        Err(e) => Err(format!("its model.json is damaged ({e})")),
        Ok(_) => parsed,
    }
}

struct Reader<'a> {
    graph: &'a Json,
    signature: &'a Json,
    path: &'a str,
    names: BTreeMap<String, u64>,
    values: Vec<ProgramValue>,
    places: HashMap<String, usize>,
    first_input: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(module: &'a Json, path: &'a str, bindings: &Bindings) -> Result<Self, ExportedError> {
        let mut reader = Self {
            graph: &module["graph"],
            signature: &module["signature"],
            path,
            names: BTreeMap::new(),
            values: Vec::new(),
            places: HashMap::new(),
            first_input: None,
        };
        reader.first_input = reader.user_inputs().next().map(str::to_owned);
        reader.bind(bindings)?;
        Ok(reader)
    }

    fn user_inputs(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let specs = self.signature["input_specs"].as_array().map_or(&[][..], Vec::as_slice);
        specs.iter().filter_map(|s| s["user_input"]["arg"]["as_tensor"]["name"].as_str())
    }

    /// Open dimensions get what the user gave, else the size that the exporter saw.
    fn bind(&mut self, bindings: &Bindings) -> Result<(), ExportedError> {
        let inputs: Vec<&str> = self.user_inputs().collect();
        for (i, input) in inputs.iter().enumerate() {
            let sizes = self.graph["tensor_values"][*input]["sizes"].as_array().cloned().unwrap_or_default();
            for (d, size) in sizes.iter().enumerate() {
                let given = match (i, d) {
                    (0, 0) => bindings.batch,
                    (0, 1) => bindings.seq,
                    _ => None,
                };
                let what = if d == 0 { "batch" } else { "sequence" };
                match (size["as_expr"]["expr_str"].as_str().and_then(name_in), size["as_int"].as_u64()) {
                    (Some(name), _) => {
                        let hint = size["as_expr"]["hint"]["as_int"].as_u64();
                        let size = bindings.dims.get(name).copied().or(given).or(hint);
                        if let Some(size) = size {
                            self.names.entry(name.to_owned()).or_insert(size);
                        }
                    }
                    (_, Some(fixed)) if given.is_some_and(|g| g != fixed) => {
                        return Err(ExportedError::Fixed { file: self.path.to_owned(), what, fixed });
                    }
                    _ => {}
                }
            }
        }
        for dim in bindings.dims.keys() {
            if !self.names.contains_key(dim) {
                let open: Vec<&str> = self.names.keys().map(String::as_str).collect();
                let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
                let dim = dim.clone();
                return Err(ExportedError::NoSuchDim { file: self.path.to_owned(), dim, open });
            }
        }
        Ok(())
    }

    fn size(&self, size: &Json) -> Result<u64, ExportedError> {
        if let Some(n) = size["as_int"].as_u64() {
            return Ok(n);
        }
        let text = size["as_expr"]["expr_str"].as_str().unwrap_or_default();
        evaluate(text, &self.names).or_else(|dim| {
            size["as_expr"]["hint"]["as_int"].as_u64().ok_or_else(|| ExportedError::Open {
                file: self.path.to_owned(),
                dim: if dim.is_empty() { text.to_owned() } else { dim },
            })
        })
    }

    /// The place of a tensor in the list of values.
    fn value(&mut self, name: &str, role: Role) -> Result<usize, ExportedError> {
        if let Some(&place) = self.places.get(name) {
            return Ok(place);
        }
        let meta = &self.graph["tensor_values"][name];
        let mut shape = Vec::new();
        for size in meta["sizes"].as_array().map_or(&[][..], Vec::as_slice) {
            shape.push(self.size(size)?);
        }
        // Numbers of the archive's schema: 1 to 5 are integers, 12 is bool.
        let whole = meta["dtype"].as_u64().is_some_and(|d| (1..=5).contains(&d) || d == 12);
        let content = if whole { Content::Int } else { Content::Float };
        self.values.push(ProgramValue { name: name.to_owned(), shape, content, role });
        self.places.insert(name.to_owned(), self.values.len() - 1);
        Ok(self.values.len() - 1)
    }

    fn program(mut self, name: &str) -> Result<Program, ExportedError> {
        for spec in self.signature["input_specs"].as_array().cloned().unwrap_or_default() {
            let named = |kind: &str| spec[kind]["arg"]["name"].as_str();
            if let Some(input) = spec["user_input"]["arg"]["as_tensor"]["name"].as_str() {
                self.value(input, Role::Input)?;
            } else if let Some(parameter) = named("parameter") {
                let place = self.value(parameter, Role::Parameter)?;
                if let Some(path) = spec["parameter"]["parameter_name"].as_str() {
                    path.clone_into(&mut self.values[place].name);
                }
            } else if let Some(buffer) = named("buffer").or_else(|| named("tensor_constant")) {
                self.value(buffer, Role::Buffer)?;
            }
        }
        let mut calls = Vec::new();
        for node in self.graph["nodes"].as_array().map_or(&[][..], Vec::as_slice) {
            calls.push(self.call(node)?);
        }
        let mut outputs = Vec::new();
        for output in self.graph["outputs"].as_array().map_or(&[][..], Vec::as_slice) {
            if let Some(name) = output["as_tensor"]["name"].as_str() {
                outputs.push(self.value(name, Role::Computed)?);
            }
        }
        let first = self.first_input.as_ref().and_then(|n| self.places.get(n)).map(|&p| &self.values[p]);
        let samples = first.and_then(|v| v.shape.first()).copied().unwrap_or(1);
        let seq = first.filter(|v| v.content == Content::Int).and_then(|v| v.shape.get(1)).copied();
        Ok(Program { name: name.to_owned(), samples, seq, values: self.values, calls, outputs })
    }

    fn call(&mut self, node: &Json) -> Result<ProgramCall, ExportedError> {
        let target = node["target"].as_str().unwrap_or_default();
        let mut parts = target.trim_start_matches("torch.ops.").split('.');
        let op = match (parts.next(), parts.next()) {
            (Some("aten"), Some(name)) => name.to_owned(),
            // A block of calls that makes constants (tables of positions).
            (Some("higher_order"), _) => "create".to_owned(),
            (Some(space), Some(name)) => format!("{space}::{name}"),
            _ => target.to_owned(),
        };
        let mut args = Vec::new();
        for input in node["inputs"].as_array().map_or(&[][..], Vec::as_slice) {
            let value = self.arg(&input["arg"])?;
            let at = match (input["name"].as_str(), input["kind"].as_u64()) {
                (Some("is_causal"), _) => 5,
                (_, Some(2)) => continue,
                _ => args.len(),
            };
            while args.len() <= at {
                args.push(Arg::None);
            }
            args[at] = value;
        }
        let mut outputs = Vec::new();
        for output in node["outputs"].as_array().map_or(&[][..], Vec::as_slice) {
            let single = output["as_tensor"]["name"].as_str();
            let several = output["as_tensors"].as_array().map_or(&[][..], Vec::as_slice);
            for name in single.into_iter().chain(several.iter().filter_map(|t| t["name"].as_str())) {
                outputs.push(self.value(name, Role::Computed)?);
            }
        }
        let stack = node["metadata"]["nn_module_stack"].as_str().unwrap_or_default();
        let path = stack.rsplit(';').next().and_then(|m| m.split(',').nth(1)).unwrap_or_default();
        Ok(ProgramCall { op, path: path.to_owned(), args, outputs })
    }

    fn arg(&mut self, arg: &Json) -> Result<Arg, ExportedError> {
        let Some((kind, value)) = arg.as_object().and_then(|o| o.iter().next()) else { return Ok(Arg::None) };
        Ok(match kind.as_str() {
            "as_tensor" => match value["name"].as_str() {
                Some(name) => Arg::Value(self.value(name, Role::Computed)?),
                None => Arg::None,
            },
            "as_tensors" | "as_optional_tensors" => {
                let mut places = Vec::new();
                for item in value.as_array().map_or(&[][..], Vec::as_slice) {
                    let name = item["name"].as_str().or_else(|| item["as_tensor"]["name"].as_str());
                    if let Some(name) = name {
                        places.push(self.value(name, Role::Computed)?);
                    }
                }
                Arg::Values(places)
            }
            "as_int" => value.as_i64().map_or(Arg::None, Arg::Whole),
            "as_ints" => Arg::Wholes(
                value.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Json::as_i64).collect(),
            ),
            "as_float" => value.as_f64().map_or(Arg::None, Arg::Real),
            "as_bool" => value.as_bool().map_or(Arg::None, Arg::Flag),
            _ => Arg::None,
        })
    }
}
