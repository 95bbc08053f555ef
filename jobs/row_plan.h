#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/record_reader.h"
#include "jobs/prefix_order.h"

namespace tokenmill::jobs {

/// A row's place in the plan.
struct PlannedRow {
  int64_t row = 0;
  /// Where its record is read from; offset -1: to be found by the index.
  io::RecordPosition position{.offset = -1};
  /// How far its prompt begins like that of the row before it in the plan, in growing steps; 0: not at all.
  int shared = 0;
};

/// The order in which the rows of a job are handed out: in windows of consecutive rows, each ordered by how prompts
/// begin. A window whose rows keep their order costs a few bytes; one of the others is in memory at a time.
class RowPlan {
 public:
  RowPlan() = default;
  /// All rows in their own order.
  explicit RowPlan(int64_t num_rows);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_windows() const { return static_cast<int64_t>(windows_.size()); }
  /// What stands at a place in [0, num_rows()); places of windows before the one asked for last are gone. The step to
  /// another window may read a file: throws Error(kIo) naming it.
  PlannedRow at(int64_t place);

 private:
  friend class RowPlanner;
  /// What is known of a window's rows; empty: they keep their order.
  struct Order {
    std::vector<uint32_t> rows;    // by place, counted from the window's begin
    std::vector<uint8_t> shared;   // by place
    std::vector<int64_t> offsets;  // by row
    std::vector<uint32_t> lines;   // by row
  };
  struct Window {
    int64_t begin = 0, end = 0;
    int64_t file_offset = -1;  // of its order; -1: in memory or none
  };
  void open(size_t window);

  int64_t num_rows_ = 0;
  std::vector<Window> windows_;
  size_t current_ = 0;
  Order order_;  // of the current window
  io::File file_;
};

struct RowPlannerOptions {
  /// A window has at most this many rows and about this many fingerprints (4 bytes each). This bounds the memory: 33
  /// bytes a row and the fingerprints while a window is planned, 17 bytes a row afterwards.
  int64_t max_rows = int64_t{1} << 19;
  int64_t max_fingerprints = int64_t{4} << 20;
  /// A file to be made when more than one window needs keeping.
  std::string spill_path;
};

/// Makes the plan while the index pass sees every row of the job once, in ascending order.
class RowPlanner {
 public:
  explicit RowPlanner(RowPlannerOptions options);
  /// The next row. Throws Error(kIo) when a window cannot be written.
  void add(const io::RecordPosition& position, std::string_view prefix);
  /// The plan, once.
  RowPlan finish();
  double seconds() const { return seconds_; }  ///< spent in add() and finish()

 private:
  void close_window();
  void keep(RowPlan::Order order, RowPlan::Window& window);

  RowPlannerOptions options_;
  PrefixFingerprints fingerprints_;  // of the open window
  std::vector<int64_t> offsets_;     // likewise
  std::vector<uint32_t> lines_;      // likewise
  RowPlan plan_;                     // of the closed windows
  std::optional<io::FileWriter> spill_;
  double seconds_ = 0;
};

}  // namespace tokenmill::jobs
