//! What no compiler checks about the source itself.
