//! Parts of an expression, each with its position for messages.

/// A part of an expression.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    /// The position of the first character in the expression, counted in characters from 1.
    pub(super) position: usize,
}

impl<'a> Part<'a> {
    /// Returns a whole expression.
    pub(super) fn whole(text: &'a str) -> Part<'a> {
        Part { text, position: 1 }
    }

    /// Split before the byte `index`.
    pub(super) fn split_at(self, index: usize) -> (Part<'a>, Part<'a>) {
        let (text, rest) = self.text.split_at(index);
        let position = self.position + text.chars().count();
        let rest = Part {
            text: rest,
            position,
        };
        (Part { text, ..self }, rest)
    }

    /// Split at the first `separator`, an ASCII character.
    pub(super) fn split_once(self, separator: char) -> Option<(Part<'a>, Part<'a>)> {
        let (first, rest) = self.split_at(self.text.find(separator)?);
        Some((first, rest.split_at(1).1))
    }

    /// Returns the parts between the separators.
    pub(super) fn split<const N: usize>(
        self,
        separators: [char; N],
    ) -> impl Iterator<Item = Part<'a>> {
        let mut position = self.position;
        self.text.split(separators).map(move |text| {
            let part = Part { text, position };
            position += text.chars().count() + 1;
            part
        })
    }

    /// Leave out the spaces and tabs at both ends.
    pub(super) fn trimmed(self) -> Part<'a> {
        let blanks = [' ', '\t'];
        let begin = self.text.len() - self.text.trim_start_matches(blanks).len();
        let (_, part) = self.split_at(begin);
        Part {
            text: part.text.trim_end_matches(blanks),
            ..part
        }
    }
}

/// Returns the words of an expression between spaces and tabs.
pub(super) fn words(expression: &str) -> impl Iterator<Item = Part<'_>> {
    let words = Part::whole(expression).split([' ', '\t']);
    words.filter(|word| !word.text.is_empty())
}
