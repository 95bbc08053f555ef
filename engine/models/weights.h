#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/models/range.h"
#include "engine/models/weight_catalog.h"
#include "kernels/ops.h"

namespace tokenmill {

/// What the loader executes (loader.h): every (tensor, sink, part), in no particular order. A tensor may feed several
/// sinks.
struct WeightPlan {
  struct Entry {
    const WeightSource* source;
    WeightSink* sink;
    int part;
    int64_t begin = 0, end = source->num_bytes;  ///< the bytes of the tensor that the sink needs, in its granularity
  };
  std::vector<Entry> entries;
};

/// Rows [rows.begin, rows.end) of a tensor of num_rows rows (of a vector: its elements).
struct RowSlice {
  std::string name;
  int64_t num_rows = 0;
  Range rows;
};
/// All rows.
RowSlice whole_tensor(std::string name, int64_t num_rows);

/// Collects what a rank needs of a model (shapes checked against the checkpoint), says how many bytes that takes, then
/// places it all in one storage and gives the plan that fills it. Targets must stay where they are until place() has
/// run.
class WeightBuilder {
 public:
  WeightBuilder(Ops& ops, const WeightCatalog& catalog, DType compute_dtype);
  ~WeightBuilder();
  /// While false, what is asked for is checked and counted as part of the model but belongs to another rank: its target
  /// stays empty.
  void set_held(bool held) { held_ = held; }
  /// Columns cols of the slices of [out, in_features] tensors, stacked in order.
  void linear(std::unique_ptr<Linear>& target, const std::vector<RowSlice>& slices, int64_t in_features, Range cols);
  /// All columns.
  void linear(std::unique_ptr<Linear>& target, const std::vector<RowSlice>& slices, int64_t in_features) {
    linear(target, slices, in_features, {0, in_features});
  }
  void embedding(std::unique_ptr<Embedding>& target, const RowSlice& slice, int64_t cols);
  /// The slices of vectors one after the other, in the compute dtype.
  void vector(TensorView& target, const std::vector<RowSlice>& slices);

  int64_t num_bytes() const { return num_bytes_; }
  /// What the storage holds and in which order, a line each: with the tensors' bytes and Ops::weight_layout() all that
  /// the packed bytes depend on.
  std::string describe() const;
  int64_t num_parameters() const { return num_parameters_; }  ///< of the whole model: distinct tensors
  /// Names of the catalog's tensors that nothing asked for; none of a random one.
  std::vector<std::string> unused() const;
  /// storage: num_bytes(), 64-byte aligned, outlives the targets. Afterwards the builder owns the vectors' sinks: keep
  /// it until the plan has been loaded.
  WeightPlan place(std::span<std::byte> storage);

 private:
  struct Item;
  const WeightSource& source_of(const RowSlice& slice, int64_t cols);
  LinearPart part(const WeightSource& source, int64_t rows, int64_t cols) const;
  void count(const WeightSource& source, const LinearPart& part);
  void reserve(Item item);
  Ops& ops_;
  const WeightCatalog& catalog_;
  DType compute_dtype_;
  bool held_ = true;
  std::vector<Item> items_;
  std::map<std::string, WeightSource> random_sources_;  ///< of a random catalog, as they were asked for
  std::vector<std::unique_ptr<WeightSink>> vector_sinks_;
  std::set<const WeightSource*> counted_;
  int64_t num_bytes_ = 0, num_parameters_ = 0;
};

}  // namespace tokenmill
