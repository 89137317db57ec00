//! The ratios as a picture.

use std::fmt::Write as _;

use crate::table::{Row, ratio_text};

const LINE: usize = 22;
const TOP: usize = 40;
/// Where bars begin: names stand left of it.
const LEFT: usize = 430;
/// How long a bar is that just meets its goal.
const GOAL: f64 = 130.0;
/// Longer bars are cut.
const MOST: f64 = 2.5;
const WIDTH: usize = 860;

const STYLE: &str = "\
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 11px; fill: #59636e; }
  .met { fill: #1a7f37; } .missed { fill: #bc4c00; }
  line { stroke: #59636e; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .met { fill: #3fb950; } .missed { fill: #f0883e; }
    line { stroke: #9198a1; }
  }";

/// Bars of all rows that have a goal; longer is better, the dashed line is the goal. Bars without a background, for a
/// light and a dark page.
pub fn svg(rows: &[Row]) -> String {
    let bars: Vec<_> = rows.iter().filter_map(|row| Some((row, row.ratio()?, row.is_met()?))).collect();
    let height = TOP + bars.len() * LINE + 12;
    let goal = LEFT as f64 + GOAL;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>Figures against their goals</title>\n<style>\n{STYLE}\n</style>\n\
         <text class=\"small\" x=\"{goal}\" y=\"16\" text-anchor=\"middle\">goal</text>\n\
         <text class=\"small\" x=\"{}\" y=\"16\" text-anchor=\"end\">longer is better</text>\n",
        WIDTH - 8,
    );
    for (n, (row, ratio, met)) in bars.into_iter().enumerate() {
        let (y, length) = (TOP + n * LINE, ratio.min(MOST) * GOAL);
        let class = if met { "met" } else { "missed" };
        let end = LEFT as f64 + length + 6.0;
        let cut = if ratio > MOST { " →" } else { "" };
        // Nothing can go wrong in writing to a text.
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"14\" rx=\"2\"/>\
             <text class=\"small\" x=\"{end:.1}\" y=\"{}\">{}{cut}</text>",
            LEFT - 8,
            y + 4,
            escaped(&row.name),
            y - 8,
            y + 3,
            ratio_text(ratio),
        );
    }
    let _ = writeln!(text, "<line x1=\"{goal}\" y1=\"22\" x2=\"{goal}\" y2=\"{}\"/>\n</svg>", height - 6);
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Unit;

    #[test]
    fn a_bar_for_each_goal_and_none_runs_out_of_the_picture() {
        let rows = [
            Row::new("a < b", 1.0, Unit::Count).at_most(1000.0),
            Row::new("missed", 1.0, Unit::Count).at_least(2.0),
            Row::new("no goal", 1.0, Unit::Count),
        ];
        let picture = svg(&rows);
        assert_eq!((picture.matches("<rect").count(), picture.matches("class=\"missed\"").count()), (2, 1));
        assert!(picture.contains("a &lt; b") && picture.contains("width=\"325.0\""), "{picture}");
    }
}
