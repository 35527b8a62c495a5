//! Replays transcripts over HTTP to those who may read them.
