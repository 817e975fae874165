//! Places names beside dots so that they cover neither dots nor each other.

/// Width of a character and height of a line at [`FONT`], in pixels, with a little air.
const CHARACTER: f64 = 6.3;
const LINE: f64 = 13.0;
/// Size of the letters.
pub(crate) const FONT: u32 = 10;
/// Air between a dot and its name.
const GAP: f64 = 3.0;
/// Pixels between the points that stand for a line.
const PATH_STEP: f64 = 4.0;

/// A rectangle in pixels: left, top, right, bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Area([f64; 4]);

impl Area {
    fn around(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self([x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0])
    }

    /// Square pixels that two rectangles share.
    fn shared(&self, other: &Self) -> f64 {
        let [a, b] = [self.0, other.0];
        let width = a[2].min(b[2]) - a[0].max(b[0]);
        let height = a[3].min(b[3]) - a[1].max(b[1]);
        if width > 0.0 && height > 0.0 { width * height } else { 0.0 }
    }

    /// Square pixels outside a frame of this size.
    fn outside(&self, size: (f64, f64)) -> f64 {
        let own = (self.0[2] - self.0[0]) * (self.0[3] - self.0[1]);
        own - self.shared(&Self([0.0, 0.0, size.0, size.1]))
    }
}

/// A dot with its name, in pixels from the upper left corner of the plot area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dot<'a> {
    pub x: f64,
    pub y: f64,
    pub radius: f64,
    pub name: &'a str,
}

/// The middle of a name, and whether it stands so far away that a line should lead to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub x: f64,
    pub y: f64,
    pub leads: bool,
}

/// A place for the name of each dot, clear of a path as far as it goes; earlier dots choose first.
pub(crate) fn place(dots: &[Dot], path: &[(f64, f64)], size: (f64, f64)) -> Vec<Place> {
    let mut taken: Vec<Area> =
        dots.iter().map(|d| Area::around(d.x, d.y, 2.0 * d.radius + 2.0, 2.0 * d.radius + 2.0)).collect();
    for ends in path.windows(2) {
        let (dx, dy) = (ends[1].0 - ends[0].0, ends[1].1 - ends[0].1);
        let steps = (dx.hypot(dy) / PATH_STEP).ceil().max(1.0);
        for step in 0..steps as usize {
            let share = step as f64 / steps;
            taken.push(Area::around(ends[0].0 + share * dx, ends[0].1 + share * dy, 2.0, 2.0));
        }
    }
    let mut places = Vec::with_capacity(dots.len());
    for dot in dots {
        let width = dot.name.chars().count() as f64 * CHARACTER;
        let cost = |p: &Place| {
            let area = Area::around(p.x, p.y, width, LINE);
            taken.iter().map(|t| t.shared(&area)).sum::<f64>() + 10.0 * area.outside(size)
        };
        let mut best: Option<(f64, Place)> = None;
        for candidate in candidates(dot, width) {
            let cost = cost(&candidate);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, candidate));
            }
            if cost == 0.0 {
                break;
            }
        }
        let chosen = best.map_or(Place { x: dot.x, y: dot.y, leads: false }, |(_, place)| place);
        taken.push(Area::around(chosen.x, chosen.y, width, LINE));
        places.push(chosen);
    }
    places
}

/// Beside the dot, above and below it, then further and further away.
fn candidates(dot: &Dot, width: f64) -> Vec<Place> {
    let (beside, above) = (dot.radius + GAP + width / 2.0, dot.radius + GAP + LINE / 2.0);
    let near = [(beside, 0.0), (-beside, 0.0), (0.0, -above), (0.0, above)].into_iter().chain([
        (beside, -LINE / 2.0),
        (-beside, -LINE / 2.0),
        (beside, LINE / 2.0),
        (-beside, LINE / 2.0),
    ]);
    let far = (1..=6).flat_map(|step| {
        let (out, up) = (12.0 * f64::from(step), LINE * f64::from(step) + above);
        [
            (beside + out, -up),
            (-beside - out, -up),
            (beside + out, up),
            (-beside - out, up),
            (0.0, -up),
            (0.0, up),
        ]
    });
    near.map(|(dx, dy)| Place { x: dot.x + dx, y: dot.y + dy, leads: false })
        .chain(far.map(|(dx, dy)| Place { x: dot.x + dx, y: dot.y + dy, leads: true }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_crowded_dots_stay_apart() {
        let names: Vec<String> = (0..9).map(|i| format!("gpu-number-{i}")).collect();
        let dots: Vec<Dot> = names
            .iter()
            .enumerate()
            .map(|(i, name)| Dot {
                x: 200.0 + 6.0 * i as f64,
                y: 150.0 - 3.0 * (i % 3) as f64,
                radius: 4.0,
                name,
            })
            .collect();
        let places = place(&dots, &[], (400.0, 300.0));
        let areas: Vec<Area> = dots
            .iter()
            .zip(&places)
            .map(|(d, p)| Area::around(p.x, p.y, d.name.len() as f64 * CHARACTER, LINE))
            .collect();
        for (i, a) in areas.iter().enumerate() {
            assert!(areas[..i].iter().all(|b| a.shared(b) == 0.0), "{i}: {places:?}");
            assert_eq!(a.outside((400.0, 300.0)), 0.0);
        }
    }

    #[test]
    fn a_line_is_kept_clear() {
        let dots = [Dot { x: 50.0, y: 50.0, radius: 4.0, name: "ab" }];
        // The path leaves to the right, so the name goes to the left.
        assert!((place(&dots, &[(50.0, 50.0), (200.0, 50.0)], (400.0, 300.0))[0].x - 36.7).abs() < 1e-9);
    }

    #[test]
    fn a_lone_name_stands_right_of_its_dot() {
        let dots = [Dot { x: 50.0, y: 50.0, radius: 4.0, name: "ab" }];
        // 50 + 4 + 3 + half of 2 x 6.3
        assert_eq!(place(&dots, &[], (400.0, 300.0)), [Place { x: 63.3, y: 50.0, leads: false }]);
    }
}
