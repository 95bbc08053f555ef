// The head and sampler of FakeOps: every row through the f64 reference.
#include <algorithm>
#include <bit>
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

/// Row r of the logits of a whole vocabulary, in one piece or in shards.
reference::Values row_of(const TensorView& logits, int64_t r, int64_t vocab_size) {
  const VocabShards shards{vocab_size, logits.rank() == 3 ? logits.size(0) : 1};
  reference::Values out;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const int64_t shard = shards.shard_of(id / kVocabTile);
    const int64_t rows_before = shard == 0 ? 0 : shard * logits.size(1);
    out.push_back(get(logits, rows_before + r, id - shards.first_id(shard)));
  }
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

/// sampler_row() with the filters.
reference::SamplerRow parameters(const LogitsRows& rows, int64_t r, const SamplingTables& tables, int64_t first_id,
                                 int64_t count) {
  reference::SamplerRow row = sampler_row(rows, r, tables, first_id, count);
  const int64_t slot = rows.slots.as<int32_t>()[r];
  row.filter = {get(tables.min_p, 0, slot), tables.top_k.as<int32_t>()[slot], get(tables.top_p, 0, slot)};
  return row;
}

bool is_filtered(const reference::SamplerRow& row) {
  return row.temperature > 0 && (row.filter.min_p > 0 || row.filter.top_k > 0 || row.filter.top_p < 1);
}

double uniform_of(const StepTensors& step, int64_t r, const SamplingTables& tables) {
  const int64_t slot = step.rows.slots.as<int32_t>()[r], token = step.rows.tokens.as<int32_t>()[r];
  return uniform(static_cast<uint64_t>(tables.key.as<int64_t>()[slot]), step.positions.as<int64_t>()[token] + 1);
}

void store_pick(const PickResult& out, int64_t r, int64_t id, double logprob, int status, const StepTensors& step,
                const SamplingTables& tables) {
  const int64_t slot = step.rows.slots.as<int32_t>()[r];
  if (status != 0) id = 0;
  put(out.token_ids, 0, r, static_cast<double>(id));
  put(out.logprobs, 0, r, logprob);
  put(out.status, 0, r, status);
  put(tables.last_token, 0, slot, static_cast<double>(id));
  const bool counts = tables.adjust.defined() && (tables.adjust.as<int32_t>()[slot] & kAdjustCounts) != 0;
  if (status == 0 && counts) ++tables.counts.row<int32_t>(slot)[id];
}

/// The id of a row that is forced, greedy or drawn without filters, from the partials and the adjusted logits of its
/// tile; -1: none, or it lies where adjusted(id) is NaN.
template <typename Adjusted>
int64_t unfiltered_choice(const HeadTiles& tiles, int64_t r, const StepTensors& step, const reference::SamplerRow& row,
                          const SamplingTables& tables, Adjusted&& adjusted, int64_t vocab_size) {
  if (step.rows.forced_ids.as<int32_t>()[r] >= 0) return step.rows.forced_ids.as<int32_t>()[r];
  const int64_t num_tiles = tiles.max.cols();
  int64_t best = 0;
  for (int64_t t = 1; t < num_tiles; ++t) {
    if (get(tiles.adjusted_max, r, t) > get(tiles.adjusted_max, r, best)) best = t;
  }
  const double max = get(tiles.adjusted_max, r, best);
  if (max == -INFINITY) return -1;
  if (row.temperature <= 0) return tiles.argmax.row<int32_t>(r)[best];
  const auto mass = [&](int64_t t) {
    return get(tiles.sum_exp_t, r, t) * std::exp((get(tiles.adjusted_max, r, t) - max) / row.temperature);
  };
  double total = 0, before = 0;
  for (int64_t t = 0; t < num_tiles; ++t) total += mass(t);
  const double target = uniform_of(step, r, tables) * total;
  int64_t tile = 0;
  while (tile + 1 < num_tiles && before + mass(tile) <= target) before += mass(tile++);
  int64_t id = -1;
  for (int64_t i = tile * kVocabTile; i < std::min(vocab_size, (tile + 1) * kVocabTile); ++i) {
    const double x = adjusted(i);
    if (std::isnan(x)) return -1;
    const double weight = std::exp((x - max) / row.temperature);
    if (weight > 0) id = i;
    before += weight;
    if (weight > 0 && before > target) break;
  }
  return id;
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
    for (int64_t r = 0; r < tiles.max.rows(); ++r) {
      const reference::Values logits = row_of(tiles.logits, r, vocab_size);
      const reference::SamplerRow row = parameters(step.rows, r, tables, 0, vocab_size);
      const bool bad = !all_finite(logits);
      int64_t id = step.rows.forced_ids.as<int32_t>()[r];
      if (!bad && id < 0) id = reference::draw(logits, row, uniform_of(step, r, tables)).id;
      const int status = bad ? 1 : id < 0 ? 2 : 0;
      store_pick(out, r, id, status != 0 ? 0 : reference::logprob(logits, id), status, step, tables);
    }
  });
}

void FakeOps::do_join_tiles(const HeadTiles& tiles, TensorView gathered, const VocabShards& shards) {
  stream_.enqueue([=] {
    for (int64_t tile = 0; tile < shards.num_tiles(); ++tile) {
      const int64_t shard = shards.shard_of(tile), rows = gathered.size(2);
      const auto word = [&](int64_t i, int64_t r) {
        return gathered.row<int32_t>((shard * kTileWords + i) * rows + r)[tile - shards.first_tile(shard)];
      };
      for (int64_t r = 0; r < rows; ++r) {
        put(tiles.max, r, tile, std::bit_cast<float>(word(0, r)));
        put(tiles.sum_exp, r, tile, std::bit_cast<float>(word(1, r)));
        put(tiles.adjusted_max, r, tile, std::bit_cast<float>(word(2, r)));
        put(tiles.argmax, r, tile, word(3, r));
        put(tiles.sum_exp_t, r, tile, std::bit_cast<float>(word(4, r)));
        put(tiles.non_finite, r, tile, word(5, r));
      }
    }
  });
}

/// Where a filter says no id without the others' logits, every id of the shard that reaches its k-th largest is listed,
/// with its adjusted logit.
void FakeOps::do_shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                           const StepTensors& step, const SamplingTables& tables) {
  stream_.enqueue([=] {
    const int64_t count = tiles.logits.cols(), capacity = (list.cols() - 1) / 3;
    for (int64_t r = 0; r < list.rows(); ++r) {
      int32_t* words = list.row<int32_t>(r);
      words[0] = 0;
      const auto add = [&](int64_t id, double adjusted) {
        if (words[0]++ >= capacity) return;
        words[words[0]] = static_cast<int32_t>(id);
        words[words[0] + capacity] = std::bit_cast<int32_t>(static_cast<float>(get(tiles.logits, r, id - first_id)));
        words[words[0] + 2 * capacity] = std::bit_cast<int32_t>(static_cast<float>(adjusted));
      };
      reference::Values logits;
      for (int64_t i = 0; i < count; ++i) logits.push_back(get(tiles.logits, r, i));
      const reference::SamplerRow row = parameters(step.rows, r, tables, first_id, count);
      const reference::Values x = count > 0 ? reference::adjusted(logits, row) : reference::Values{};
      if (is_filtered(row) && step.rows.forced_ids.as<int32_t>()[r] < 0) {
        reference::Values sorted = x;
        std::sort(sorted.rbegin(), sorted.rend());
        const auto last = std::min(sorted.size(), static_cast<size_t>(row.filter.top_k));
        for (int64_t i = 0; i < count; ++i) {
          const double value = x[static_cast<size_t>(i)];
          if (value >= sorted[last - 1] && value > -INFINITY) add(first_id + i, value);
        }
        continue;
      }
      const int64_t id = unfiltered_choice(
          tiles, r, step, row, tables,
          [&](int64_t id) {
            return id < first_id || id >= first_id + count ? NAN : x[static_cast<size_t>(id - first_id)];
          },
          vocab_size);
      if (id >= first_id && id < first_id + count) add(id, 0);
    }
  });
}

bool FakeOps::do_shortlists_fit(TensorView lists) {
  stream_.synchronize();
  for (int64_t r = 0; r < lists.rows(); ++r) {
    if (lists.row<int32_t>(r)[0] > (lists.cols() - 1) / 3) return false;
  }
  return true;
}

void FakeOps::do_pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                             const StepTensors& step, const SamplingTables& tables) {
  stream_.enqueue([=] {
    const int64_t capacity = (lists.cols() - 1) / 3;
    for (int64_t r = 0; r < tiles.max.rows(); ++r) {
      reference::Values listed(static_cast<size_t>(vocab_size), -INFINITY), raw(listed);
      int64_t id = -1;
      for (int64_t p = 0; p < lists.size(0); ++p) {
        const int32_t* words = lists.row<int32_t>(p * lists.size(1) + r);
        for (int32_t i = 1; i <= words[0]; ++i) {
          id = words[i];
          raw[static_cast<size_t>(id)] = std::bit_cast<float>(words[i + capacity]);
          listed[static_cast<size_t>(id)] = std::bit_cast<float>(words[i + 2 * capacity]);
        }
      }
      const reference::SamplerRow row = parameters(step.rows, r, tables, 0, vocab_size);
      bool bad = false;
      double max = -INFINITY, sum = 0;
      for (int64_t t = 0; t < tiles.max.cols(); ++t) {
        bad = bad || tiles.non_finite.row<int32_t>(r)[t] != 0;
        max = std::max(max, get(tiles.max, r, t));
      }
      for (int64_t t = 0; t < tiles.max.cols(); ++t)
        sum += get(tiles.sum_exp, r, t) * std::exp(get(tiles.max, r, t) - max);
      if (!bad && is_filtered(row) && step.rows.forced_ids.as<int32_t>()[r] < 0) {
        id =
            reference::draw(listed, {.temperature = row.temperature, .filter = row.filter}, uniform_of(step, r, tables))
                .id;
      }
      const int status = bad ? 1 : id < 0 ? 2 : 0;
      const double logprob = status != 0 ? 0 : raw[static_cast<size_t>(id)] - max - std::log(sum);
      store_pick(out, r, id, logprob, status, step, tables);
    }
  });
}

void FakeOps::do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size,
                                const LogprobRows& rows, const SamplingTables& tables) {
  stream_.enqueue([=] {
    for (int64_t r = 0; r < tiles.max.rows(); ++r) {
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
