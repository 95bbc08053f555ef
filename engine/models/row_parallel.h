#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/models/part_sum.h"
#include "engine/models/shard.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"
#include "parallel/communicator.h"

namespace tokenmill {

/// The tokens of a step in the turns that a layer takes them in: one, or two so that the transfers of one half run
/// beside the products of the other.
using Turns = std::vector<Range>;

/// A linear that ends a block of a decoder layer: its input features are spread over the ranks of a tensor-parallel
/// group (Shoeybi et al., arXiv:1909.08053), its output is added to the residual stream, which every rank holds whole.
/// The products of the parts are moved as f32 and added in the order of the parts, so that all ranks have the same
/// bits, and with a fixed number of parts any number of ranks has (PartSum).
class RowParallelLinear {
 public:
  /// Where the parts of num_tokens tokens meet; a region of the activations.
  struct Buffers {
    TensorView parts;      ///< [n] f32, at least part_floats() of so many tokens
    TensorView block_out;  ///< [num_tokens + padding_rows(), hidden_size] compute dtype
  };
  /// A product whose sum has been started; without a sum where one rank makes one part.
  struct Pending {
    int64_t num_tokens = 0;
    TensorView block_out;
    std::optional<PartSum> sum;
  };

  /// Registers the columns inputs[i] of the tensor name + ".weight" [out_features, in_features] with builder, and the
  /// bias where there is one; inputs: of this rank's parts, one behind the other.
  void register_weights(WeightBuilder& builder, const std::string& name, int64_t in_features,
                        const std::vector<Range>& inputs, int64_t out_features, bool has_bias);

  /// f32 values that the sums of at most max_tokens tokens need.
  static int64_t part_floats(const ModelGrid& grid, int64_t max_tokens, int64_t hidden_size);
  /// Tokens are dealt out in equal shares: block_out has so many rows more than tokens.
  static int64_t padding_rows(const ModelGrid& grid) { return grid.tp_size - 1; }

  /// Two turns of about as many tokens that share the buffers for num_tokens; one where they cannot.
  static Turns two_turns(const ModelGrid& grid, int64_t num_tokens, int64_t hidden_size);

  /// Multiplies x [num_tokens, this rank's inputs] and starts to move the parts. The buffers are taken until finish().
  Pending start(Ops& ops, parallel::Communicator& tp, TensorView x, const Buffers& buffers) const;
  /// hidden += the sum (rounded to the dtype); normed = rms_norm(hidden) where norm [hidden_size] is defined.
  void finish(Ops& ops, parallel::Communicator& tp, const Pending& pending, TensorView hidden, TensorView normed,
              TensorView norm, float eps) const;

 private:
  std::vector<std::unique_ptr<Linear>> parts_;
  std::vector<Range> columns_;  // of x, by part
  TensorView bias_;
};

}  // namespace tokenmill
