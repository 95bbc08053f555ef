// The head and sampler of FakeOps: every row through the f64 reference.
#include <algorithm>
#include <cmath>

#include "kernels/random.h"
#include "tests/support/fake_ops.h"
#include "tests/support/fake_weights.h"
#include "tests/support/random.h"
#include "tests/support/reference_sampling.h"

namespace tokenmill::test {
namespace {

double get(const TensorView& view, int64_t row, int64_t column) { return HostTensor::get_at(view, row, column); }
void put(const TensorView& view, int64_t row, int64_t column, double value) {
  HostTensor::set_at(view, row, column, value);
}

reference::Values row_of(const TensorView& logits, int64_t row, int64_t count) {
  reference::Values out;
  for (int64_t i = 0; i < count; ++i) out.push_back(get(logits, row, i));
  return out;
}

bool all_finite(const reference::Values& values) {
  return std::all_of(values.begin(), values.end(), [](double l) { return std::isfinite(l); });
}

/// What the tables say of row r, for ids [first_id, first_id + count).
reference::SamplerRow sampler_row(const LogitsRows& rows, int64_t r, const SamplingTables& tables, int64_t first_id,
                                  int64_t count) {
  reference::SamplerRow out;
  if (!rows.slots.defined()) return out;
  const int64_t slot = rows.slots.as<int32_t>()[r];
  out.temperature = get(tables.temperature, 0, slot);
  for (int32_t i = rows.masked_offsets.as<int32_t>()[r]; i < rows.masked_offsets.as<int32_t>()[r + 1]; ++i) {
    const int64_t id = rows.masked_ids.as<int32_t>()[i] - first_id;
    if (id >= 0 && id < count) out.masked_ids.push_back(static_cast<int32_t>(id));
  }
  const int32_t adjust = tables.adjust.defined() ? tables.adjust.as<int32_t>()[slot] : 0;
  if ((adjust & kAdjustBias) != 0) {
    for (int64_t i = 0; i < count; ++i) out.bias.push_back(get(tables.bias, slot, first_id + i));
  }
  if ((adjust & kAdjustCounts) == 0) return out;
  out.presence_penalty = get(tables.presence_penalty, 0, slot);
  out.frequency_penalty = get(tables.frequency_penalty, 0, slot);
  out.repetition_penalty = get(tables.repetition_penalty, 0, slot);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t word = tables.counts.row<int32_t>(slot)[first_id + i];
    if ((word & kInPrompt) != 0) out.prompt_ids.push_back(static_cast<int32_t>(i));
    out.generated_ids.insert(out.generated_ids.end(), static_cast<size_t>(word & ~kInPrompt), static_cast<int32_t>(i));
  }
  return out;
}

struct TileSums {
  double max = -INFINITY, sum = 0;
  int64_t argmax = 0;
  TileSums(const reference::Values& x, double t) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!(x[i] > max)) continue;
      max = x[i];
      argmax = static_cast<int64_t>(i);
    }
    for (const double l : x) sum += l == -INFINITY ? 0 : std::exp((l - max) / t);
  }
};

}  // namespace

void FakeOps::do_count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                              int64_t num_prompt_tokens) {
  stream_.enqueue([=, ids = std::vector(token_ids.begin(), token_ids.end())] {
    auto* counts = tables.counts.row<int32_t>(slot);
    std::fill_n(counts, tables.counts.cols(), 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (static_cast<int64_t>(i) < num_prompt_tokens) {
        counts[ids[i]] |= kInPrompt;
      } else {
        ++counts[ids[i]];
      }
    }
  });
}

void FakeOps::do_set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                          std::span<const float> values) {
  stream_.enqueue([=, ids = std::vector(ids.begin(), ids.end()), values = std::vector(values.begin(), values.end())] {
    std::fill_n(tables.bias.row<float>(slot), tables.bias.cols(), fill);
    for (size_t i = 0; i < ids.size(); ++i) tables.bias.row<float>(slot)[ids[i]] = values[i];
  });
}

void FakeOps::do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                               int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) {
  const TensorView w = fake_table(head);
  stream_.enqueue([=] {
    fake_multiply(out.logits, hidden, w, {});
    for (int64_t r = 0; r < hidden.rows(); ++r) {
      const double set_t = rows.slots.defined() ? get(tables.temperature, 0, rows.slots.as<int32_t>()[r]) : 0;
      for (int64_t tile = 0; tile < out.max.cols(); ++tile) {
        const int64_t begin = tile * kVocabTile;
        const int64_t count =
            std::max<int64_t>(0, std::min({kVocabTile, w.rows() - begin, vocab_size - first_id - begin}));
        reference::Values logits;
        for (int64_t i = 0; i < count; ++i) logits.push_back(get(out.logits, r, begin + i));
        const TileSums raw(logits, 1);
        const TileSums adjusted(reference::adjusted(logits, sampler_row(rows, r, tables, first_id + begin, count)),
                                set_t > 0 ? set_t : 1);
        put(out.max, r, tile, raw.max);
        put(out.sum_exp, r, tile, raw.sum);
        put(out.adjusted_max, r, tile, adjusted.max);
        put(out.argmax, r, tile, static_cast<double>(first_id + begin + adjusted.argmax));
        put(out.sum_exp_t, r, tile, adjusted.sum);
        put(out.non_finite, r, tile, all_finite(logits) ? 0 : 1);
      }
    }
  });
}

void FakeOps::do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                      const SamplingTables& tables) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < tiles.logits.rows(); ++r) {
      const int64_t slot = step.rows.slots.as<int32_t>()[r], token = step.rows.tokens.as<int32_t>()[r];
      const reference::Values logits = row_of(tiles.logits, r, vocab_size);
      reference::SamplerRow row = sampler_row(step.rows, r, tables, 0, vocab_size);
      row.filter = {get(tables.min_p, 0, slot), tables.top_k.as<int32_t>()[slot], get(tables.top_p, 0, slot)};
      const double u =
          uniform(static_cast<uint64_t>(tables.key.as<int64_t>()[slot]), step.positions.as<int64_t>()[token] + 1);
      const bool bad = !all_finite(logits);
      int64_t id = step.rows.forced_ids.as<int32_t>()[r];
      if (!bad && id < 0) id = reference::draw(logits, row, u).id;
      const int status = bad ? 1 : id < 0 ? 2 : 0;
      if (status != 0) id = 0;
      put(out.token_ids, 0, r, static_cast<double>(id));
      put(out.logprobs, 0, r, status != 0 ? 0 : reference::logprob(logits, id));
      put(out.status, 0, r, status);
      put(tables.last_token, 0, slot, static_cast<double>(id));
      const bool counts = tables.adjust.defined() && (tables.adjust.as<int32_t>()[slot] & kAdjustCounts) != 0;
      if (status == 0 && counts) ++tables.counts.row<int32_t>(slot)[id];
    }
  });
}

void FakeOps::do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size,
                                const LogprobRows& rows, const SamplingTables& tables) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < tiles.logits.rows(); ++r) {
      const reference::Values logits = row_of(tiles.logits, r, vocab_size);
      const int32_t num_top = rows.num_top.as<int32_t>()[r];
      put(out.status, 0, r, all_finite(logits) ? 0 : 1);
      if (num_top < 0 || !all_finite(logits)) continue;
      const int64_t id = rows.token_ids.as<int32_t>()[r];
      put(out.logprobs, 0, r, reference::logprob(logits, id));
      put(out.ranks, 0, r, static_cast<double>(reference::rank(logits, id)));
      std::vector<int64_t> top = reference::most_likely(logits, num_top);
      const int32_t listed = rows.listed_slots.as<int32_t>()[r];
      for (size_t i = 0; i < top.size(); ++i) {
        const auto column = static_cast<int64_t>(i);
        if (listed >= 0) top[i] = tables.listed_ids.row<int32_t>(listed)[i];
        put(out.top_ids, r, column, static_cast<double>(top[i]));
        put(out.top_logprobs, r, column, reference::logprob(logits, top[i]));
        put(out.top_ranks, r, column, static_cast<double>(reference::rank(logits, top[i])));
      }
    }
  });
}

}  // namespace tokenmill::test
