//! Good and bad lines.

use serde_json::json;

use super::*;

/// The case of one step on a write tool `t` (`k` is keyed), after the calls `A` and `B`.
fn step(step: &str) -> String {
    format!(
        r#"{{"id":"x","tools":{{"t":{{}},"k":{{"effect":"keyed"}}}},"steps":[
            {{"op":"call","as":"A","tool":"t"}},{{"op":"call","as":"B","tool":"k"}},{step}]}}"#
    )
}

/// The case of one tool and one call of it.
fn tool(tool: &str) -> String {
    format!(r#"{{"id":"x","tools":{{"t":{tool}}},"steps":[{{"op":"call","tool":"t"}}]}}"#)
}

/// Reads one case that may be folded over several lines here.
fn read(folded: &str) -> Result<Vec<Scenario>, Vec<Problem>> {
    parse(&folded.replace('\n', " "))
}

fn good(line: &str) -> Scenario {
    match read(line) {
        Ok(cases) => cases.into_iter().next().expect("a case"),
        Err(problems) => panic!("{}\n{}", problems[0], line),
    }
}

/// Asserts that the line is refused with a sentence that holds `says`.
fn bad(line: &str, says: &str) {
    let problems = read(line).expect_err(line);
    let message = problems[0].to_string();
    assert!(message.starts_with("line 1: ") && message.contains(says), "{message}\n{line}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn the_example_of_the_form() {
    let case = good(
        r#"{"id":"retry-01","tools":{"charge":{"effect":"write"}},"steps":[{"op":"call","as":"A","turn":0,
            "id":"c1","tool":"charge","args":{"amount":4200},"fate":"slow:200","patience_ms":50,
            "expect":{"reply":"running"}},{"op":"call","as":"B","turn":1,"id":"c2","tool":"charge",
            "args_text":"{\"amount\": 4200.0}","expect":{"reply":["joined"],"marked":true}}],
            "effects":{"charge":1}}"#,
    );
    let [Step::Call(a), Step::Call(b)] = case.steps.as_slice() else { panic!("two calls") };
    assert_eq!(a.fate_of(0), Fate { wait_ms: 0, kind: FateKind::Slow(200) });
    assert_eq!(a.arguments(), r#"{"amount":4200}"#);
    assert_eq!(b.arguments(), r#"{"amount": 4200.0}"#);
    assert_eq!(b.expect.as_ref().and_then(|e| e.marked), Some(true));
    assert_eq!(case.effects["charge"], Count { min: 1, max: 1 });
    assert_eq!(case.config, Config::default());
}

#[test]
fn argument_numbers_keep_their_text() {
    let text = r#"{"a":18446744073709551617,"b":1.0,"c":-0,"a":1E2}"#;
    let case = good(&step(&format!(r#"{{"op":"call","tool":"t","args":{text}}}"#)));
    assert_eq!(case.steps[2].calls()[0].arguments(), text);
}

#[test]
fn every_policy_is_read() {
    let case = good(&tool(
        r#"{"effect":"keyed","schema":{"type":"object"},"repeat":"ask","scope":"global","in_doubt":"resend",
            "mismatch":"replay","check":true,"reopened_by":["u"],"again":true,"approval":"first","attempts":3,
            "retention_ms":5,"key_window_ms":"permanent","settle_ms":6,"max_result_bytes":7,"look_alike":"run",
            "context":["cwd"]}"#,
    ));
    let t = &case.tools["t"];
    assert_eq!((t.effect, t.repeat, t.scope), (Effect::Keyed, Some(Repeat::Ask), Some(Scope::Global)));
    assert_eq!((t.key_window_ms, t.attempts), (Some(Window::Permanent), 3));
    let looked = good(&tool(r#"{"in_doubt":{"reconcile":["cannot_tell","happened","did_not_happen"]}}"#));
    let answers = vec![LookUp::CannotTell, LookUp::Happened, LookUp::DidNotHappen];
    assert_eq!(looked.tools["t"].in_doubt, Some(InDoubt::Reconcile(answers)));
    for policy in [
        r#""repeat":"once""#,
        r#""repeat":"each""#,
        r#""scope":"run""#,
        r#""in_doubt":"hold""#,
        r#""mismatch":"conflict""#,
        r#""look_alike":"ask""#,
        r#""look_alike":"off""#,
        r#""effect":"read_only""#,
        r#""effect":"idempotent""#,
        r#""effect":"write""#,
    ] {
        good(&tool(&format!("{{{policy}}}")));
    }
}

#[test]
fn a_wrong_policy_is_named() {
    for (text, says) in [
        (r#"{"effect":"reed_only"}"#, "unknown variant `reed_only`"),
        (r#"{"efect":"write"}"#, "`t`: unknown field `efect`"),
        (r#"{"effect":"idempotent","in_doubt":"hold"}"#, "`in_doubt` is for"),
        (r#"{"in_doubt":"resend"}"#, "only a `keyed` tool can `resend`"),
        (r#"{"in_doubt":{"reconcile":[]}}"#, "an empty list"),
        (r#"{"in_doubt":{"reconcile":["maybe"]}}"#, "unknown variant `maybe`"),
        (r#"{"key_window_ms":5}"#, "`key_window_ms` is for"),
        (r#"{"effect":"keyed","key_window_ms":"long"}"#, "neither a whole number in range nor \"permanent\""),
        (r#"{"attempts":0}"#, "`attempts`"),
        (r#"{"approval":"always"}"#, "unknown variant `always`"),
        (r#"{"schema":[]}"#, "schema is not an object"),
        (r#"{"settle_ms":-1}"#, "invalid value"),
    ] {
        bad(&tool(text), says);
    }
}

#[test]
fn every_step_is_read() {
    for text in [
        r#"{"op":"call","as":"C","run":"r","namespace":"m","turn":3,"id":"","tool":"t","args":{},
            "context":{"cwd":"/a"},"fate":["fail_before","wait:5+unknown"],"patience_ms":1,"parallel":true,
            "drop_ms":2,"undelivered":true,"guard":1,"expect":{"reply":"executed"}}"#,
        r#"{"op":"answer","run":"r1","turn":0,"calls":[{"as":"C","tool":"t","expect":{"same_as":"D"}},{"as":"D",
            "tool":"t"}]}"#,
        r#"{"op":"wait","for":"A"}"#,
        r#"{"op":"wait","for":"A","expect":{"reply":"executed","marked":false,"same_as":"B","result":{"n":1},
            "says":"x","not_says":["y"],"downstream_same_as":"B","downstream_differs_from":"B","fields":["/a"],
            "kept":false}}"#,
        r#"{"op":"restart"}"#,
        r#"{"op":"restart","seen":2}"#,
        r#"{"op":"restart","seen":"none"}"#,
        r#"{"op":"advance","ms":5}"#,
        r#"{"op":"clock","wall_ms":-5}"#,
        r#"{"op":"resolve","call":"A","happened":true,"result":{"n":1}}"#,
        r#"{"op":"resolve","call":"A","happened":false,"expect":{"error":true}}"#,
        r#"{"op":"approve","call":"A"}"#,
        r#"{"op":"deny","call":"A"}"#,
        r#"{"op":"answer_shown","call":"A"}"#,
        r#"{"op":"not_shown","call":"A"}"#,
        r#"{"op":"open_second"},{"op":"pause","guard":2,"at":"before_body"},{"op":"continue","guard":2}"#,
        r#"{"op":"store_fault","on":"claim","kind":"unavailable","times":2}"#,
        r#"{"op":"store_fault","on":"all","kind":"sync_error","times":"until_cleared"},{"op":"store_clear"}"#,
        r#"{"op":"step","run":"r1","name":"s","input":1,"value":2,"expect":{"value":2}}"#,
        r#"{"op":"step","name":"s","expect":{"diverged":true}}"#,
        r#"{"op":"fork","run":"r1","as_run":"r2","before_turn":1}"#,
        r#"{"op":"deploy","tools":{"u":{}}}"#,
        r#"{"op":"gc"}"#,
        r#"{"op":"backup"},{"op":"restore_backup","expect":{"open":"refused"}}"#,
        r#"{"op":"delete_store","expect":{"open":"refused"}}"#,
        r#"{"op":"call","as":"C","tool":"t","fate":"crash_after"},{"op":"restart"}"#,
    ] {
        good(&step(text));
    }
}

#[test]
fn a_wrong_step_is_named() {
    for (text, says) in [
        (r#"{"op":"jump"}"#, "step 3: unknown variant `jump`"),
        (r#"{"tool":"t"}"#, "missing field `op`"),
        (r#"{"op":"call","tool":"t","patience":1}"#, "unknown field `patience`"),
        (r#"{"op":"call"}"#, "missing field `tool`"),
        (r#"{"op":"call","tool":"u"}"#, "step 3: `u` is called but not in `tools`"),
        (r#"{"op":"call","tool":"t","turn":4294967296}"#, "step 3: invalid value: integer `4294967296`"),
        (r#"{"op":"answer","turn":4294967296,"calls":[{"tool":"t"}]}"#, "step 3: invalid value: integer `4294967296`"),
        (r#"{"op":"restart","seen":4294967296}"#, "neither a whole number in range"),
        (r#"{"op":"call","as":"A","tool":"t"}"#, "two calls are named `A`"),
        (r#"{"op":"call","tool":"t","args":{},"args_text":"{}"}"#, "exclude each other"),
        (r#"{"op":"call","tool":"t","fate":"later"}"#, "unknown fate `later`"),
        (r#"{"op":"call","tool":"t","fate":[]}"#, "an empty list"),
        (r#"{"op":"call","tool":"t","fate":"crash_after"}"#, "no `restart` follows"),
        (
            r#"{"op":"call","tool":"t","fate":"crash_after","expect":{"reply":"in_doubt"}},{"op":"restart"}"#,
            "no `expect`",
        ),
        (
            r#"{"op":"call","as":"C","tool":"t","parallel":true,"fate":"crash_after"},{"op":"wait","for":"C",
                "expect":{"marked":true}}"#,
            "`C` crashes",
        ),
        (r#"{"op":"call","tool":"t","expect":{"reply":"done"}}"#, "unknown variant `done`"),
        (r#"{"op":"call","tool":"t","expect":["executed"]}"#, "where an object is due"),
        (r#"{"op":"call","tool":"t","expect":{}}"#, "judges nothing"),
        (r#"{"op":"call","tool":"t","expect":{"kept":true}}"#, "only `false`"),
        (r#"{"op":"call","tool":"t","expect":{"fields":["a"]}}"#, "no JSON Pointer"),
        (r#"{"op":"call","tool":"t","expect":{"same_as":"Z"}}"#, "no call is named `Z`"),
        (r#"{"op":"call","tool":"t","guard":2}"#, "needs an `open_second`"),
        (r#"{"op":"call","tool":"t","guard":3}"#, "no guard 3"),
        (r#"{"op":"answer","turn":0,"calls":[]}"#, "without calls"),
        (r#"{"op":"answer","turn":0,"calls":[{"tool":"t","turn":0}]}"#, "belong to the `answer`"),
        (r#"{"op":"answer","turn":0,"calls":[{"tool":"t","x":0}]}"#, "step 3: call 1: unknown field `x`"),
        (r#"{"op":"wait","for":"Z"}"#, "no call is named `Z`"),
        (r#"{"op":"resolve","call":"A","happened":false,"result":1}"#, "has no `result`"),
        (r#"{"op":"restart","seen":"all"}"#, "neither a whole number in range nor \"none\""),
        (r#"{"op":"advance","ms":"5"}"#, "invalid type"),
        (r#"{"op":"gc","ms":5}"#, "unknown field `ms`"),
        (r#"{"op":"gc","expect":{"error":false}}"#, "only `true`"),
        (r#"{"op":"restore_backup","expect":{"open":"refused"}}"#, "no `backup`"),
        (r#"{"op":"delete_store","expect":{"open":"refused"}},{"op":"gc"}"#, "ends the file"),
        (r#"{"op":"step","name":"s","expect":{"diverged":false}}"#, "only `true`"),
        (r#"{"op":"pause","at":"after_body"}"#, "unknown variant `after_body`"),
    ] {
        bad(&step(text), says);
    }
}

#[test]
fn a_wrong_case_is_named() {
    for (line, says) in [
        ("nonsense", "not JSON at column 2"),
        ("[]", "`[]` stands where an object is due"),
        (r#"{"id":"x"} {"id":"y"}"#, "not JSON at column 12"),
        (r#"{"tools":{}}"#, "missing field `id`"),
        (r#"{"id":"","warnings":[]}"#, "the id is empty"),
        (r#"{"id":"x"}"#, "no steps"),
        (r#"{"id":"x","id":"x"}"#, "`id` stands twice in one object"),
        (r#"{"id":"x","tools":{"t":{"schema":{"a":1,"b":[{"c":1,"c":null}]}}}}"#, "`c` stands twice in one object"),
        (r#"{"id":"x","title":"y"}"#, "unknown field `title`"),
        (r#"{"id":"x","tools":{"t":{},"t":{}}}"#, "`t` stands twice"),
        (r#"{"id":"x","register":"accepted"}"#, "unknown variant `accepted`"),
        (r#"{"id":"x","register":"refused","steps":[{"op":"gc"}]}"#, "leaves nothing for `steps`"),
        (r#"{"id":"x","steps":[{"op":"gc"}],"effects":{"t":1}}"#, "`t` is counted"),
        (r#"{"id":"x","tools":{"t":{}},"steps":[{"op":"gc"}],"effects":{"t":[2,1]}}"#, "neither a count nor"),
        (r#"{"id":"x","tools":{"t":{}},"steps":[{"op":"gc"}],"effects":{"t":-1}}"#, "neither a count nor"),
        (r#"{"id":"x","steps":[{"op":"gc"}],"config":{"lease":1}}"#, "unknown field `lease`"),
    ] {
        bad(line, says);
    }
}

#[test]
fn problems_carry_their_line() {
    let text = format!("{}\n\n{}\nnonsense\n", tool("{}"), tool("{}"));
    let problems = parse(&text).expect_err("two problems");
    assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [Some(3), Some(4)]);
    assert_eq!(problems[0].message, "the id `x` stands twice in this file");
}

#[test]
fn a_file_without_cases_and_one_with_a_byte_order_mark_are_refused() {
    for empty in ["", "\n", " \n\t\r\n"] {
        assert_eq!(parse(empty).expect_err("no cases")[0].to_string(), "no cases in this file");
    }
    bad(&format!("\u{feff}{}", tool("{}")), "byte order mark");
}

#[test]
fn lints_need_no_steps() {
    let case = good(r#"{"id":"x","tools":{"t":{}},"warnings":["t"]}"#);
    assert_eq!(case.warnings, Some(vec!["t".to_owned()]));
    assert_eq!(case.tools["t"].schema, json!({"type": "object"}));
}
