#pragma once
#include <cstdint>
#include <functional>

#include "app/diff/row_stream.h"

namespace tokenmill::diff {

/// Which lines belong together, from front to back; what is not there is null.
using PairVisitor = std::function<void(const ResultLine* a, const ResultLine* b)>;

/// Walks two outputs that are in row order and calls visit with every line once: a pair, or one alone.
///   1. Lines with equal ids are a pair, whatever their row numbers.
///   2. Where ids differ, the side on which the other's id comes up sooner (RowStream::distance_to) misses nothing: its
///      lines before that one are alone.
///   3. Where neither id comes up, the line with the smaller row number is alone; with equal row numbers, or none, the
///      two are a pair whose ids differ.
/// Memory: what the two streams look ahead.
void visit_pairs(RowStream& a, RowStream& b, const PairVisitor& visit);

}  // namespace tokenmill::diff
