//! Nothing but its tests: rules of the house that the compiler does not know, held against the text of the
//! repository. A crate of its own, without dependencies, so that looking at text builds nothing.
