#pragma once
#include <cstdint>
#include <functional>

#include "app/diff/row_stream.h"

namespace tokenmill::diff {

/// Which lines belong together; what is not there is null.
using PairVisitor = std::function<void(const ResultLine* a, const ResultLine* b)>;

/// How the two outputs' rows lie.
struct PairingNotes {
  int64_t num_moved = 0;  ///< pairs whose lines stand in another order in B than in A
  int64_t num_separated =
      0;  ///< lines visited alone, on either side, whose id had been alone on the other, too far away
};

/// Walks two outputs and calls visit with every line once: a pair, or one alone.
///   1. Lines with equal ids are a pair, whatever their row numbers and wherever they stand, as long as the lines that
///      wait between them fit in max_waiting_bytes on each side.
///   2. Where ids differ, the side on which the other's id comes up sooner (RowStream::distance_to) goes on alone.
///   3. Where neither id comes up, the line with the smaller row number goes on alone; lines with equal row numbers, or
///      none, whose ids have no other pair are a pair whose ids differ.
/// Order of visits: pairs as they stand, lines without a pair when that is known. Memory: what the two streams look
/// ahead, as much again for what waits, and 8 bytes for each of at most a million ids that found no pair.
PairingNotes visit_pairs(RowStream& a, RowStream& b, const PairVisitor& visit,
                         int64_t max_waiting_bytes = RowStream::kMaxAheadBytes);

}  // namespace tokenmill::diff
