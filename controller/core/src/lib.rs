//! The pure core of the controller: observe in, decision out.
