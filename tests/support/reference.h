#pragma once
#include <cstdint>
#include <vector>

/// Every operation in f64 and plain loops: what the kernels are compared with. Slow on purpose, kept for good.
/// Matrices are row after row.
namespace tokenmill::reference {

using Values = std::vector<double>;

/// x [rows, n], weight [n].
Values rms_norm(const Values& x, const Values& weight, int64_t n, double eps);

/// x [rows, in], w [out, in]; bias [out] and residual [rows, out] may be empty.
Values linear(const Values& x, const Values& w, int64_t in_features, const Values& bias, const Values& residual);

/// gate_up [rows, 2 n].
Values gated_silu(const Values& gate_up, int64_t n);

/// parts [num_parts, count].
Values sum_parts(const Values& parts, int64_t num_parts);

/// Half-split rotation of the first rotary_dim of each head in x [rows, heads * dim] by positions[row] * inv_freq[i].
Values rope(const Values& x, const std::vector<int64_t>& positions, const std::vector<float>& inv_freq, int64_t dim,
            double multiplier);

/// One query head of one sequence: q [k_dim] at `position`, keys [context, k_dim], values [context, v_dim].
struct AttentionHead {
  int64_t k_dim, v_dim;
  double scale, softcap;
  int64_t window;  ///< 0: off
};
Values attention(const AttentionHead& head, const double* q, int64_t position, const Values& keys,
                 const Values& values);

/// softmax(logits / temperature); and the probabilities that min-p, top-k, top-p leave, renormalized (Ops::pick).
Values softmax(const Values& logits, double temperature);
struct Filter {
  double min_p = 0;
  int64_t top_k = 0;
  double top_p = 1;
};
Values filtered_softmax(const Values& logits, double temperature, const Filter& filter);

}  // namespace tokenmill::reference
