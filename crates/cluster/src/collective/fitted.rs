//! The constants of collectives: `data/fitted/collectives.toml`, embedded.

use super::Kind;
use super::bus::generation;
use super::lines::{Line, Lines};
use super::network::Constants;
use crate::interval::LogInterval;
use crate::link::LinkKind;
use crate::node::NetworkKind;
use preflop_core::units::math::Elementary as _;
use serde::Deserialize;

const FILE: &str = include_str!("../../data/fitted/collectives.toml");

#[derive(Debug, Clone, Deserialize)]
struct LinesEntry {
    link: String,
    collective: String,
    clock_mhz: f64,
    lines: [[f64; 4]; 3],
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct NetworkTable {
    r0: f64,
    hi: f64,
    hn: f64,
    phi_r: f64,
    t0: f64,
    ht: f64,
    phi_t: f64,
    phi_2: f64,
    a0: f64,
    ah: f64,
    phi_a: f64,
    l0: f64,
    phi_l: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct NetworkEntry {
    kind: NetworkKind,
    constants: NetworkTable,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct PcieTable {
    peer: [f64; 3],
    consumer: [f64; 3],
    none: [f64; 3],
    peer_exponent: f64,
    none_exponent: f64,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SendRecvTable {
    start_us: f64,
    fraction: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Intervals {
    small: LogInterval,
    middle: LogInterval,
    large: LogInterval,
    unseen: LogInterval,
    across: LogInterval,
    launcher_us_per_gpu: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Document {
    lines: Vec<LinesEntry>,
    network: Vec<NetworkEntry>,
    pcie: PcieTable,
    send_recv: SendRecvTable,
    intervals: Intervals,
}

/// Three lines of one collective on one generation, and the clock they were measured at.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    link: LinkKind,
    kind: Kind,
    clock: f64,
    lines: Lines,
}

/// All constants.
#[derive(Debug, Clone)]
pub struct Fitted {
    lines: Vec<Measured>,
    network: Vec<(NetworkKind, Constants)>,
    pcie: PcieTable,
    send_recv: SendRecvTable,
    intervals: Intervals,
}

impl Fitted {
    /// The constants that ship with the tool.
    ///
    /// # Panics
    /// Never: a test reads the embedded file.
    #[allow(clippy::expect_used)]
    pub fn embedded() -> Self {
        Self::parse(FILE).expect("the embedded constants are well formed")
    }

    /// Constants of a file of the same form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|e| e.message().to_string())?;
        let lines = document
            .lines
            .iter()
            .map(|entry| {
                let link =
                    LinkKind::from_name(&entry.link).ok_or_else(|| format!("link `{}`", entry.link))?;
                let kind = Kind::from_name(&entry.collective)
                    .ok_or_else(|| format!("collective `{}`", entry.collective))?;
                let line = |[a, h, phi, e]: [f64; 4]| Line { a: a * 1e-6, h: h * 1e-6, phi, e };
                Ok(Measured { link, kind, clock: entry.clock_mhz * 1e6, lines: entry.lines.map(line) })
            })
            .collect::<Result<_, String>>()?;
        let network = document
            .network
            .iter()
            .map(|entry| {
                let t = entry.constants;
                let us = 1e-6;
                let constants = Constants {
                    r0: t.r0 * us,
                    hi: t.hi * us,
                    hn: t.hn * us,
                    phi_r: t.phi_r,
                    t0: t.t0 * us,
                    ht: t.ht * us,
                    phi_t: t.phi_t,
                    phi_2: t.phi_2,
                    a0: t.a0 * us,
                    ah: t.ah * us,
                    phi_a: t.phi_a,
                    l0: t.l0 * us,
                    phi_l: t.phi_l,
                };
                (entry.kind, constants)
            })
            .collect();
        Ok(Self {
            lines,
            network,
            pcie: document.pcie,
            send_recv: document.send_recv,
            intervals: document.intervals,
        })
    }

    /// The lines of a collective on this generation, if it was measured.
    pub fn lines(&self, link: LinkKind, kind: Kind) -> Option<Lines> {
        self.lines.iter().find(|m| m.link == link && m.kind == kind).map(|m| m.lines)
    }

    /// Lines of all generations with the clocks they were measured at.
    pub fn generations(&self, kind: Kind) -> Vec<(Lines, f64)> {
        self.lines.iter().filter(|m| m.kind == kind).map(|m| (m.lines, m.clock)).collect()
    }

    /// The same without one generation, to see how well it is guessed from the others.
    #[must_use]
    pub fn without(mut self, link: LinkKind) -> Self {
        self.lines.retain(|m| m.link != link);
        self
    }

    /// Other constants for a kind of network.
    #[must_use]
    pub fn with_network(mut self, kind: NetworkKind, constants: Constants) -> Self {
        self.network.retain(|(k, _)| *k != kind);
        self.network.push((kind, constants));
        self
    }

    /// Constants of a network: fitted for InfiniBand and EFA. RoCE counts as InfiniBand; sockets pass every
    /// byte through more hands and count as EFA, with a wide interval.
    pub fn network(&self, kind: NetworkKind) -> Constants {
        let like = match kind {
            NetworkKind::Infiniband | NetworkKind::Roce => NetworkKind::Infiniband,
            NetworkKind::Efa | NetworkKind::Tcp | NetworkKind::Ethernet => NetworkKind::Efa,
        };
        let found = self
            .network
            .iter()
            .find(|(k, _)| *k == kind)
            .or_else(|| self.network.iter().find(|(k, _)| *k == like));
        found.or(self.network.first()).map_or(Constants::from_array([0.0; 13]), |(_, c)| *c)
    }

    /// Bus bandwidth of two GPUs on the host's bus.
    pub fn pcie(&self, kind: LinkKind, p2p: bool, consumer: bool) -> f64 {
        let table = match (p2p, consumer) {
            (false, _) => &self.pcie.none,
            (true, true) => &self.pcie.consumer,
            (true, false) => &self.pcie.peer,
        };
        table[generation(kind)] * 1e9
    }

    /// How the bus bandwidth changes with half the group size.
    pub fn pcie_exponent(&self, p2p: bool) -> f64 {
        if p2p { self.pcie.peer_exponent } else { self.pcie.none_exponent }
    }

    /// Start in seconds and fraction of the link of a send.
    pub fn send_recv(&self) -> (f64, f64) {
        (self.send_recv.start_us * 1e-6, self.send_recv.fraction)
    }

    /// Interval of a message of this size inside a whole machine: where the generation was measured widest where protocols change,
    /// elsewhere as wide as a generation that was left out is off.
    pub fn inside(&self, bytes: f64, seen: bool) -> LogInterval {
        match bytes {
            _ if !seen => self.intervals.unseen,
            b if b < 65_536.0 => self.intervals.small,
            b if b < 16e6 => self.intervals.middle,
            _ => self.intervals.large,
        }
    }

    /// The interval of a message that takes `time` seconds among `gpus` inside a virtual machine, whose hosts nobody knows: as wide as a
    /// generation that was left out, and later by what one process takes that starts the collective on one GPU after the other.
    ///
    /// ```text
    /// high = ln(e^unseen + gpus * launch / time)
    /// ```
    pub fn inside_virtual(&self, time: f64, gpus: f64) -> LogInterval {
        let unseen = self.intervals.unseen;
        let late = gpus * self.intervals.launcher_us_per_gpu * 1e-6 / time.max(f64::MIN_POSITIVE);
        LogInterval { high: (unseen.high.exponential() + late).natural_log(), ..unseen }
    }

    /// Interval between nodes.
    pub fn across(&self) -> LogInterval {
        self.intervals.across
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_file_has_three_generations_of_four_collectives() {
        let fitted = Fitted::embedded();
        for kind in [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll] {
            assert_eq!(fitted.generations(kind).len(), 3);
        }
        assert!(fitted.network(NetworkKind::Roce).hn < fitted.network(NetworkKind::Efa).hn);
    }

    #[test]
    fn a_virtual_machines_host_makes_short_messages_late_and_long_ones_hardly() {
        let fitted = Fitted::embedded();
        let whole = fitted.inside(1024.0, false);
        let (short, long) = (fitted.inside_virtual(20e-6, 8.0), fitted.inside_virtual(20e-3, 8.0));
        // e^0.30 + 8 * 4.4 us / 20 us = 1.350 + 1.760 = 3.110, whose log is 1.1346
        assert!((short.high - 1.1346).abs() < 1e-4, "{short:?}");
        assert!(long.high - whole.high < 2e-3 && short.low == whole.low);
    }
}
