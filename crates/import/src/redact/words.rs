//! Which names may leave: those made of words that libraries, profilers and frameworks use. Every other word is given a
//! number in its place, the same one each time, so that what differs stays apart.

use preflop_core::dtype::Dtype;
use preflop_core::profile::kernel_name::{KernelFamily, classify};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

/// Words of kernel, operator, metric, type and GPU names, in lower case: collected from recordings of public networks, with
/// the words that the core looks for in names.
const WORDS: &str = include_str!("words.txt");
static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| WORDS.split_whitespace().collect());
/// Digits of a number inside a name, such as 16816 or 1048576.
const MAX_DIGITS_INSIDE: usize = 7;
/// Digits of a number that stands alone in a name: sizes and counts.
const MAX_DIGITS_ALONE: usize = 9;
/// Longest part of a name that can be a word.
const MAX_PART: usize = 48;
/// Names remembered, to answer the same question once.
const MAX_REMEMBERED: usize = 1 << 16;
/// Numbers given out; what comes later shares the last one.
const MAX_ANONYMOUS: u32 = 1 << 22;

/// Keeps known words and numbers the others.
pub struct Namer {
    /// By hash: unknown words are not held.
    anonymous: HashMap<u64, u32>,
    hasher: RandomState,
    remembered: HashMap<Box<str>, Option<Box<str>>>,
    /// Names that were changed.
    pub changed: u64,
}

/// A piece of a name between signs such as brackets and commas.
enum Piece {
    Kept,
    Number,
    Changed(String),
}

impl Namer {
    pub fn new() -> Self {
        Self { anonymous: HashMap::new(), hasher: RandomState::new(), remembered: HashMap::new(), changed: 0 }
    }

    fn number_of(&mut self, text: &str) -> u32 {
        let next = (self.anonymous.len() as u32 + 1).min(MAX_ANONYMOUS);
        let hash = self.hasher.hash_one(text);
        if next == MAX_ANONYMOUS {
            return self.anonymous.get(&hash).copied().unwrap_or(next);
        }
        *self.anonymous.entry(hash).or_insert(next)
    }

    /// What stands for an unknown word. That something runs backward is kept, as it says which way a layer ran.
    fn anonymous(&mut self, text: &str) -> String {
        let bare = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let backward = if bare.ends_with("Backward") { "Backward" } else { "" };
        format!("anon{}{backward}", self.number_of(text))
    }

    /// A number for an identifier that is too long to be kept.
    pub fn identifier(&mut self, text: &str) -> u32 {
        self.number_of(text)
    }

    /// Is this a known word, whatever its case?
    fn is_word(text: &str) -> bool {
        text.len() > 1 && KNOWN.contains(text.to_ascii_lowercase().as_str())
    }

    /// Is this part of a name (what stands between underscores) made of known words and short numbers?
    fn is_known(part: &str) -> bool {
        if part.is_empty() || Self::is_word(part) {
            return true;
        }
        if part.len() > MAX_PART || !is_plain(part) {
            return false;
        }
        let runs = runs(part);
        let mut letters = 0;
        for (i, run) in runs.iter().enumerate() {
            let at = |i: Option<usize>| i.and_then(|i| runs.get(i)).copied().unwrap_or("");
            let (before, after) = (at(i.checked_sub(1)), at(Some(i + 1)));
            if is_digits(run) {
                if run.len() > MAX_DIGITS_INSIDE {
                    return false;
                }
            } else if run.len() == 1 {
                // `x` in 128x64, `f` in f16, `B` in BFloat, `A` in MatrixA, or all of it.
                let times = *run == "x" && is_digits(before) && is_digits(after);
                letters += u32::from(!times);
                let beside = |word: &str| word.len() > 2 && Self::is_word(word);
                let stands = runs.len() == 1
                    || is_digits(after)
                    || (i == 0 && beside(after))
                    || (after.is_empty() && beside(before));
                if !times && !stands {
                    return false;
                }
            } else if !Self::is_word(run) {
                return false;
            }
        }
        letters <= 3
    }

    /// One piece: names joined by `::`, a number, or a sign of its own.
    fn piece(&mut self, piece: &str) -> Piece {
        if is_number(piece) {
            return Piece::Number;
        }
        if matches!(piece, "-" | ".kd" | "..." | "nn.Module:") {
            return Piece::Kept;
        }
        let ending = [".step", ".zero_grad", ":"].into_iter().find(|e| piece.ends_with(e)).unwrap_or("");
        let body = &piece[..piece.len() - ending.len()];
        let (body, ending) = if body.ends_with(':') { (piece, "") } else { (body, ending) };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let scopes: Vec<&str> = body.split("::").collect();
        if !body.chars().all(plain) || scopes.iter().any(|s| s.contains(':')) {
            return Piece::Changed(self.anonymous(piece));
        }
        let mut out = String::new();
        let mut changed = false;
        for (i, scope) in scopes.iter().enumerate() {
            if i > 0 {
                out.push_str("::");
            }
            // A name does not begin with a digit, except such as 128x64.
            let odd = scope.starts_with(|c: char| c.is_ascii_digit()) && !is_size(scope);
            for (j, part) in scope.split('_').enumerate() {
                if j > 0 {
                    out.push('_');
                }
                if !odd && Self::is_known(part) {
                    out.push_str(part);
                } else {
                    changed = true;
                    let word = self.anonymous(part);
                    out.push_str(&word);
                }
            }
        }
        out.push_str(ending);
        if changed { Piece::Changed(out) } else { Piece::Kept }
    }

    /// The name with unknown words numbered, or `None` if all of it may stay.
    fn cleaned(&mut self, text: &str) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let mut changed = false;
        // Numbers side by side with nothing but blanks between them are no list: cards, telephones.
        let mut after_number = false;
        let mut rest = text;
        while !rest.is_empty() {
            let signs = rest.find(|c| !is_sign(c)).unwrap_or(rest.len());
            let between = &rest[..signs];
            after_number &= between.chars().all(|c| c == ' ');
            for c in between.chars() {
                // Tabs and line ends become blanks.
                out.push(if c.is_whitespace() { ' ' } else { c });
                changed |= c.is_whitespace() && c != ' ';
            }
            rest = &rest[signs..];
            let end = rest.find(is_sign).unwrap_or(rest.len());
            let piece = &rest[..end];
            rest = &rest[end..];
            if piece.is_empty() {
                continue;
            }
            match self.piece(piece) {
                Piece::Number if !after_number => {
                    out.push_str(piece);
                    after_number = true;
                    continue;
                }
                Piece::Number => {
                    out.push('0');
                    changed = true;
                    continue;
                }
                Piece::Kept => out.push_str(piece),
                Piece::Changed(clean) => {
                    out.push_str(&clean);
                    changed = true;
                }
            }
            after_number = false;
        }
        changed.then_some(out)
    }

    /// A name of anything but a kernel.
    pub fn name<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if let Some(known) = self.remembered.get(text) {
            let clean = known.clone();
            self.changed += u64::from(clean.is_some());
            return clean.map_or(Cow::Borrowed(text), |c| Cow::Owned(c.into()));
        }
        let clean = self.cleaned(text).map(String::into_boxed_str);
        if self.remembered.len() < MAX_REMEMBERED {
            self.remembered.insert(text.into(), clean.clone());
        }
        self.changed += u64::from(clean.is_some());
        clean.map_or(Cow::Borrowed(text), |c| Cow::Owned(c.into()))
    }

    /// A kernel's name: what [`classify`] reads out of it stays, also when the words that told it do not.
    pub fn kernel<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let clean = self.name(text);
        let class = classify(text);
        if matches!(clean, Cow::Borrowed(_)) || classify(&clean) == class {
            return clean;
        }
        let family = FAMILY_WORDS.iter().find(|(f, _)| *f == class.family).map_or("", |(_, word)| word);
        let dtype = DTYPE_WORDS.iter().find(|(d, _)| Some(*d) == class.dtype).map_or("", |(_, word)| word);
        let number = self.number_of(text);
        for tensor in ["", "_tensorop", "_simt"] {
            let name = format!("anon{number}_{family}_{dtype}{tensor}");
            if classify(&name) == class {
                return Cow::Owned(name);
            }
        }
        clean
    }

    /// Is the whole text made of known words?
    pub fn is_harmless(&mut self, text: &str) -> bool {
        self.cleaned(text).is_none()
    }

    /// The name of a GPU: words and model numbers, with a word that says whose it is.
    pub fn gpu(text: &str) -> Option<&str> {
        const MAKERS: [&str; 9] =
            ["nvidia", "amd", "tesla", "geforce", "quadro", "rtx", "gtx", "radeon", "instinct"];
        let mut maker = false;
        for word in text.split([' ', '-']) {
            let lower = word.to_ascii_lowercase();
            maker |= MAKERS.contains(&lower.as_str());
            // H100, SXM2, 80GB, HBM3, MI300X
            let digits = word.chars().filter(char::is_ascii_digit).count();
            let short = |run: &&str| run.len() <= 3 || is_digits(run) || Self::is_word(run);
            let runs = runs(word);
            let model =
                (1..=4).contains(&digits) && runs.len() <= 3 && is_plain(word) && runs.iter().all(short);
            if !(Self::is_known(word) || model) {
                return None;
            }
        }
        // One number at most stands alone: GeForce RTX 4090.
        let numbers = text.split([' ', '-']).filter(|word| is_digits(word)).count();
        (maker && numbers <= 1).then_some(text)
    }
}

/// A word that makes [`classify`] say this family.
const FAMILY_WORDS: &[(KernelFamily, &str)] = &[
    (KernelFamily::Conv, "convolve"),
    (KernelFamily::Gemm, "gemm"),
    (KernelFamily::Attention, "attention"),
    (KernelFamily::Rnn, "lstm"),
    (KernelFamily::Normalisation, "batchnorm"),
    (KernelFamily::Softmax, "softmax"),
    (KernelFamily::Pooling, "pool"),
    (KernelFamily::Reduction, "reduce"),
    (KernelFamily::Elementwise, "elementwise"),
    (KernelFamily::Copy, "copybuffer"),
    (KernelFamily::Layout, "nchwtonhwc"),
    (KernelFamily::Indexing, "index"),
    (KernelFamily::Optimizer, "fusedadam"),
    (KernelFamily::Communication, "nccl"),
    (KernelFamily::Other, ""),
];

/// A word that makes [`classify`] say this format.
const DTYPE_WORDS: &[(Dtype, &str)] = &[
    (Dtype::Fp8, "fp8"),
    (Dtype::Tf32, "tf32"),
    (Dtype::Bf16, "bf16"),
    (Dtype::Fp16, "half"),
    (Dtype::Fp64, "double"),
    (Dtype::Int8, "int8"),
    (Dtype::Fp32, "float"),
];

fn is_sign(c: char) -> bool {
    c.is_whitespace()
        || matches!(c, '<' | '>' | '(' | ')' | ',' | '*' | '&' | '[' | ']' | '{' | '}' | '#' | '=')
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `42`, `-1`, `3ul`, `128x64`.
fn is_number(text: &str) -> bool {
    let body = text.strip_prefix('-').unwrap_or(text);
    let body = body.trim_end_matches(['u', 'l', 'f']);
    is_size(body) || (is_digits(body) && body.len() <= MAX_DIGITS_ALONE)
}

/// Numbers joined by `x`.
fn is_size(text: &str) -> bool {
    text.contains('x') && text.split('x').all(|n| is_digits(n) && n.len() <= 4)
}

/// Splits a part of a name where small letters end, capital words begin, or digits do: `BFloat16` is B, Float, 16.
fn runs(part: &str) -> Vec<&str> {
    let bytes = part.as_bytes();
    let mut out = Vec::new();
    let mut from = 0;
    for i in 1..=bytes.len() {
        let ends = i == bytes.len() || {
            let (a, b) = (bytes[i - 1], bytes[i]);
            let digit = a.is_ascii_digit() != b.is_ascii_digit();
            let capital = a.is_ascii_lowercase() && b.is_ascii_uppercase();
            // The last capital of several begins the next word: NCHWTo.
            let next = a.is_ascii_uppercase()
                && b.is_ascii_uppercase()
                && bytes.get(i + 1).is_some_and(u8::is_ascii_lowercase);
            digit || capital || next
        };
        if ends {
            out.push(&part[from..i]);
            from = i;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries_stay() {
        let mut namer = Namer::new();
        for name in [
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
            "aten::_scaled_dot_product_flash_attention",
            "autograd::engine::evaluate_function: ConvolutionBackward0",
            "Memcpy HtoD (Pageable -> Device)",
            "ProfilerStep#12",
            "nn.Module: Linear_3",
            "Optimizer.step#AdamW.step",
            "aten::mm, seq = 31, sizes = [[64, 128], [128, 256]]",
            "cudaLaunchKernel",
            "triton_poi_fused_add_cos_sin_0",
        ] {
            assert_eq!(namer.name(name), name);
        }
        assert_eq!(Namer::gpu("NVIDIA H100 80GB HBM3"), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(Namer::gpu("Tesla V100-SXM2-16GB"), Some("Tesla V100-SXM2-16GB"));
        assert_eq!(Namer::gpu("NVIDIA of alice@example.org"), None);
    }

    #[test]
    fn other_words_are_numbered_the_same_each_time() {
        let mut namer = Namer::new();
        assert_eq!(namer.name("apollo_fused_add"), "anon1_fused_add");
        assert_eq!(namer.name("void apollo::zeus<float>(int)"), "void anon1::anon2<float>(int)");
        assert_eq!(namer.name("/home/someone/train.py(12): step"), "anon3(12): step");
        assert_eq!(namer.name("4111 1111 1111 1111"), "4111 0 0 0");
        assert!(namer.kernel("apollogemm_bf16x").contains("gemm"));
    }
}
