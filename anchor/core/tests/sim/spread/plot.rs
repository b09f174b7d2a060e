//! A line chart as SVG, the same bytes for the same figures: logarithmic sizes across, seconds up.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const LINE_HEIGHT: f64 = 14.0;
const COLOURS: [&str; 4] = ["#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72"];

/// A line: its name and its points, size and seconds.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Returns the chart of `lines` under `title`.
pub(crate) fn chart(title: &str, lines: &[Line<'_>]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = points().map(|(size, _)| *size).fold(f64::MAX, f64::min);
    let most = points().map(|(size, _)| *size).fold(0.0, f64::max);
    let top = points().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    let step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| top / step <= 6.0)
        .unwrap_or(20.0);
    let top = (top / step).ceil() * step;
    let across = |size: f64| {
        let part = (size / least).ln() / (most / least).ln();
        LEFT + part * (WIDTH - LEFT - RIGHT)
    };
    let up = |seconds: f64| HEIGHT - BOTTOM - seconds / top * (HEIGHT - TOP - BOTTOM);

    let mut svg = String::new();
    let mut put = |text: String| {
        let _ = writeln!(svg, "{text}");
    };
    put(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    ));
    put(format!(
        r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#
    ));
    put(format!(
        r#"<text x="{LEFT}" y="22" font-size="14">{title}</text>"#
    ));
    let mut seconds = 0.0;
    while seconds <= top + step / 2.0 {
        let y = up(seconds);
        put(format!(
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="#ddd"/>"##,
            WIDTH - RIGHT
        ));
        put(format!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{seconds:.2} s</text>"#,
            LEFT - 6.0,
            y + 4.0
        ));
        seconds += step;
    }
    for (size, _) in lines
        .first()
        .map(|line| &line.points[..])
        .unwrap_or_default()
    {
        put(format!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{size}</text>"#,
            across(*size),
            HEIGHT - BOTTOM + 18.0
        ));
    }
    put(format!(
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">anchors</text>"#,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 12.0
    ));
    for (line, colour) in lines.iter().zip(COLOURS) {
        let places: Vec<String> = line
            .points
            .iter()
            .map(|(size, seconds)| format!("{:.1},{:.1}", across(*size), up(*seconds)))
            .collect();
        put(format!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
            places.join(" ")
        ));
    }
    // Names stand at the ends of their lines, one below the other where these meet.
    let mut ends: Vec<(f64, f64, &str, &str)> = lines
        .iter()
        .zip(COLOURS)
        .filter_map(|(line, colour)| {
            let (size, seconds) = line.points.last()?;
            Some((up(*seconds), across(*size), line.name, colour))
        })
        .collect();
    ends.sort_by(|one, two| one.0.total_cmp(&two.0));
    let mut free = 0.0_f64;
    for (y, x, name, colour) in ends {
        let y = y.max(free);
        free = y + LINE_HEIGHT;
        put(format!(
            r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{name}</text>"#,
            x + 6.0,
            y + 4.0
        ));
    }
    put("</svg>".to_owned());
    svg
}

#[test]
fn a_chart_is_the_same_for_the_same_figures_and_names_its_lines() {
    let lines = || {
        [Line {
            name: "all",
            points: vec![(100.0, 0.5), (1_000.0, 0.75)],
        }]
    };

    let svg = chart("news", &lines());

    assert_eq!(svg, chart("news", &lines()));
    assert!(
        svg.contains(">all</text>") && svg.contains(">1000</text>"),
        "{svg}"
    );
    assert!(svg.contains(r#"points="60.0,"#), "{svg}");
}
