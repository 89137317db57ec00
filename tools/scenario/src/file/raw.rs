//! Keeps the text of a call's arguments as it stands in the file.
//!
//! `serde_json` rounds integers beyond 64 bits and rewrites `1.0`, and the guard is judged on exactly such numbers. So
//! before a line is read into types, each call's `args` value is replaced by a JSON string that holds its own text.

/// Rewrites a line that is known to be valid JSON: the value of every call's `args` becomes a string of its raw text.
pub(super) fn quote_args(line: &str) -> String {
    let mut scan = Scan { text: line, at: 0, copied: 0, out: String::with_capacity(line.len() + 64) };
    scan.space();
    if scan.byte() == Some(b'{') {
        scan.object(Place::File);
    }
    scan.out.push_str(&line[scan.copied..]);
    scan.out
}

/// Which object is being read; arguments only stand in a step and in a call of an `answer`.
#[derive(Clone, Copy)]
enum Place {
    File,
    Step,
    Call,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    copied: usize,
    out: String,
}

impl Scan<'_> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.byte().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Reads an object; recursion is bounded by [`Place`], everything else is skipped without it.
    fn object(&mut self, place: Place) {
        self.at += 1;
        loop {
            self.space();
            match self.byte() {
                Some(b',') => self.at += 1,
                Some(b'"') => self.member(place),
                _ => break,
            }
        }
        self.at += 1;
    }

    fn member(&mut self, place: Place) {
        let start = self.at;
        self.string();
        let key = &self.text[start + 1..self.at - 1];
        let inner = match (place, key) {
            (Place::File, "steps") => Some(Place::Step),
            (Place::Step, "calls") => Some(Place::Call),
            _ => None,
        };
        let quoted = key == "args" && !matches!(place, Place::File);
        self.space();
        self.at += 1; // the colon
        self.space();
        let start = self.at;
        match inner {
            Some(inner) if self.byte() == Some(b'[') => self.array(inner),
            _ => self.skip(),
        }
        if quoted {
            self.quote(start);
        }
    }

    fn array(&mut self, place: Place) {
        self.at += 1;
        loop {
            self.space();
            match self.byte() {
                Some(b',') => self.at += 1,
                Some(b'{') => self.object(place),
                Some(b']') | None => break,
                Some(_) => self.skip(),
            }
        }
        self.at += 1;
    }

    fn quote(&mut self, start: usize) {
        self.out.push_str(&self.text[self.copied..start]);
        self.out.push_str(&serde_json::Value::from(&self.text[start..self.at]).to_string());
        self.copied = self.at;
    }

    /// Skips one value of any depth.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.byte() {
            match byte {
                b'"' => {
                    self.string();
                    if depth == 0 {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth <= 1 => {
                    // The end of this value, or of the container that holds a bare number or word.
                    self.at += depth;
                    return;
                }
                b'}' | b']' => depth -= 1,
                b',' if depth == 0 => return,
                b if depth == 0 && b.is_ascii_whitespace() => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Skips a string, its quotes included.
    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.byte() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quote_args;

    #[test]
    fn numbers_keep_their_text() {
        let line = r#"{"id":"x","steps":[{"op":"call","args": {"id": 18446744073709551617, "x":1.0 } ,"tool":"t"}]}"#;
        let wanted =
            r#"{"id":"x","steps":[{"op":"call","args": "{\"id\": 18446744073709551617, \"x\":1.0 }" ,"tool":"t"}]}"#;
        assert_eq!(quote_args(line), wanted);
    }

    #[test]
    fn calls_of_an_answer_too() {
        let line = r#"{"steps":[{"op":"answer","calls":[{"args":[1,"}"]},{"args":7}]}]}"#;
        assert_eq!(quote_args(line), r#"{"steps":[{"op":"answer","calls":[{"args":"[1,\"}\"]"},{"args":"7"}]}]}"#);
    }

    #[test]
    fn args_elsewhere_are_left_alone() {
        for line in [
            r#"{"args":1}"#,
            r#"{"tools":{"args":{"schema":{"args":1}}}}"#,
            r#"{"steps":{"args":1}}"#,
            r#"{"steps":[[{"args":1}],{"context":{"args":1},"x":"args"}]}"#,
            "7",
        ] {
            assert_eq!(quote_args(line), line);
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let line = format!(r#"{{"steps":[{{"args":{deep}}}]}}"#);
        assert_eq!(quote_args(&line), format!(r#"{{"steps":[{{"args":"{deep}"}}]}}"#));
    }
}
