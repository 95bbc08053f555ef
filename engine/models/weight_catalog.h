#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/weight_format.h"
#include "kernels/linear.h"

namespace tokenmill {

/// One tensor of a checkpoint under its canonical (Hugging Face) name.
struct WeightSource {
  std::string name;           ///< "model.layers.0.self_attn.q_proj.weight"
  std::string file;           ///< path
  std::string stored_name;    ///< the name inside that file: for messages
  WeightFormat format = WeightFormat::kF32;
  std::string unsupported_type;  ///< not empty: the type's name; listed by inspect, refused when a model needs it
  std::vector<int64_t> shape;  ///< row-major
  RowOrder row_order = RowOrder::kAsIs;
  int64_t head_dim = 0;  ///< for row_order
  int64_t offset = 0, num_bytes = 0;
};

/// All tensors of one checkpoint.
class WeightCatalog {
 public:
  void add(WeightSource source);
  const WeightSource* find(const std::string& name) const;
  /// Throws Error(kIo) "dir: tensor NAME is missing".
  const WeightSource& at(const std::string& name) const;
  const std::map<std::string, WeightSource>& all() const { return sources_; }
  /// Names the checkpoint in errors.
  void set_where(std::string where) { where_ = std::move(where); }
  const std::string& where() const { return where_; }
  /// The weights are made up: what is asked for is there, in the shape that it is asked for.
  void set_random() { is_random_ = true; }
  bool is_random() const { return is_random_; }

 private:
  std::map<std::string, WeightSource> sources_;
  std::string where_;
  bool is_random_ = false;
};

}  // namespace tokenmill
