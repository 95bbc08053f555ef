#include "tests/support/sampler_rows.h"

#include <cmath>

namespace tokenmill::test {
namespace {

constexpr int64_t kMostListed = 128;
constexpr double kMasked = -INFINITY;

TensorView view_of(const VisibleVector<int32_t>& ids) {
  static int32_t none = 0;
  const void* data = ids.empty() ? &none : ids.data();
  return TensorView(const_cast<void*>(data), DType::kI32, {static_cast<int64_t>(ids.size())});
}

template <typename T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.index(static_cast<int64_t>(values.size()))];
}

}  // namespace

SamplerRows::SamplerRows(Ops& ops, int64_t rows, int64_t vocab)
    : ops_(ops),
      rows_(rows),
      vocab_(vocab),
      temperature_(DType::kF32, {rows}),
      top_p_(DType::kF32, {rows}),
      min_p_(DType::kF32, {rows}),
      top_k_(DType::kI32, {rows}),
      key_(DType::kI64, {rows}),
      last_(DType::kI32, {rows}),
      adjust_(DType::kI32, {rows}),
      presence_(DType::kF32, {rows}),
      frequency_(DType::kF32, {rows}),
      repetition_(DType::kF32, {rows}),
      listed_(DType::kI32, {rows, kMostListed}),
      counts_(DType::kI32, {rows, vocab}),
      bias_(DType::kF32, {rows, vocab}),
      positions_(DType::kI64, {rows}),
      tokens_(DType::kI32, {rows}),
      slots_(DType::kI32, {rows}),
      forced_(DType::kI32, {rows}),
      num_top_(DType::kI32, {rows}),
      listed_slots_(DType::kI32, {rows}),
      ids_(DType::kI32, {rows}),
      logprobs_(DType::kF32, {rows}),
      status_(DType::kI32, {rows}),
      masked_(static_cast<size_t>(rows)) {
  for (int64_t r = 0; r < rows; ++r) {
    tokens_.set(0, r, static_cast<double>(r));
    slots_.set(0, r, static_cast<double>(slot(r)));
    set(r, {});
    set_random(r, 1, r);
    set_num_top(r, -1);
    force(r, -1);
  }
  last_.fill(-7);
}

void SamplerRows::set(int64_t row, const reference::SamplerRow& params, const std::vector<int32_t>& listed_ids) {
  const int64_t s = slot(row);
  temperature_.set(0, s, params.temperature);
  top_p_.set(0, s, params.filter.top_p);
  min_p_.set(0, s, params.filter.min_p);
  top_k_.set(0, s, static_cast<double>(params.filter.top_k));
  presence_.set(0, s, params.presence_penalty);
  frequency_.set(0, s, params.frequency_penalty);
  repetition_.set(0, s, params.repetition_penalty);
  const bool counts = params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1;
  adjust_.set(0, s, (params.bias.empty() ? 0 : kAdjustBias) | (counts ? kAdjustCounts : 0));
  std::vector<int32_t> all = params.prompt_ids;
  all.insert(all.end(), params.generated_ids.begin(), params.generated_ids.end());
  if (counts) {
    ops_.count_tokens(tables(), static_cast<int32_t>(s), all, static_cast<int64_t>(params.prompt_ids.size()));
  }
  if (!params.bias.empty()) {  // as a list over a fill: ids with a bias of their own
    std::vector<int32_t> ids;
    std::vector<float> values;
    const auto fill = static_cast<float>(params.bias.front());
    for (size_t i = 0; i < params.bias.size(); ++i) {
      if (static_cast<float>(params.bias[i]) == fill) continue;
      ids.push_back(static_cast<int32_t>(i));
      values.push_back(static_cast<float>(params.bias[i]));
    }
    ops_.set_bias(tables(), static_cast<int32_t>(s), fill, ids, values);
  }
  masked_[static_cast<size_t>(row)] = params.masked_ids;
  listed_slots_.set(0, row, listed_ids.empty() ? -1 : static_cast<double>(s));
  for (size_t i = 0; i < listed_ids.size(); ++i) listed_.set(s, static_cast<int64_t>(i), listed_ids[i]);
  masked_ids_.clear();
  masked_offsets_.assign(1, 0);
  for (const std::vector<int32_t>& ids : masked_) {
    masked_ids_.insert(masked_ids_.end(), ids.begin(), ids.end());
    masked_offsets_.push_back(static_cast<int32_t>(masked_ids_.size()));
  }
  ops_.stream().synchronize();
}

void SamplerRows::set_random(int64_t row, uint64_t key, int64_t position) {
  key_.view().as<int64_t>()[slot(row)] = static_cast<int64_t>(key);
  positions_.view().as<int64_t>()[row] = position;
}

SamplingTables SamplerRows::tables() const {
  return {temperature_, top_p_,     min_p_,      top_k_,  key_,    last_, adjust_,
          presence_,    frequency_, repetition_, listed_, counts_, bias_};
}

LogitsRows SamplerRows::rows() const {
  return {tokens_, slots_, forced_, view_of(masked_offsets_), view_of(masked_ids_)};
}

StepTensors SamplerRows::step() const {
  StepTensors step;
  step.positions = positions_;
  step.rows = rows();
  return step;
}

LogprobResult SamplerRows::make_report(int64_t width) {
  report_storage_.clear();
  report_storage_.emplace_back(DType::kF32, std::initializer_list<int64_t>{rows_});
  report_storage_.emplace_back(DType::kI32, std::initializer_list<int64_t>{rows_});
  report_storage_.emplace_back(DType::kI32, std::initializer_list<int64_t>{rows_});
  report_storage_.emplace_back(DType::kI32, std::initializer_list<int64_t>{rows_, width}, 2);
  report_storage_.emplace_back(DType::kF32, std::initializer_list<int64_t>{rows_, width}, 1);
  report_storage_.emplace_back(DType::kI32, std::initializer_list<int64_t>{rows_, width});
  for (HostTensor& t : report_storage_) t.fill(-3);
  reported_ = {report_storage_[0], report_storage_[1], report_storage_[2],
               report_storage_[3], report_storage_[4], report_storage_[5]};
  return reported_;
}

std::vector<std::byte> SamplerRows::bytes() const {
  std::vector<std::byte> all;
  const auto add = [&](const HostTensor& t) {
    const std::vector<std::byte> bytes = t.bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  for (const HostTensor* t : {&ids_, &logprobs_, &status_}) add(*t);
  for (const HostTensor& t : report_storage_) add(t);
  return all;
}

reference::SamplerRow random_sampler_row(Random& random, int64_t vocab) {
  reference::SamplerRow row;
  const auto any = [&](double low, double high) { return double{static_cast<float>(random.uniform(low, high))}; };
  row.temperature = one_of(random, {0.0, double{0.01f}, 1.0, 2.0, any(0.05, 2)});
  row.filter.top_p = one_of(random, {1.0, 1.0, double{1e-6f}, any(0.05, 0.99)});
  row.filter.top_k = one_of<int64_t>(random, {0, 0, 1, vocab - 1, vocab, vocab + 5, 1 + random.index(50)});
  row.filter.min_p = one_of(random, {0.0, 0.0, 1.0, any(0.001, 0.5)});
  row.presence_penalty = one_of(random, {0.0, -2.0, 2.0, any(-2, 2)});
  row.frequency_penalty = one_of(random, {0.0, -2.0, 2.0, any(-2, 2)});
  row.repetition_penalty = one_of(random, {1.0, 1.0, double{1e-3f}, 100.0, any(0.5, 2)});
  for (int64_t i = random.index(40); i > 0; --i) row.prompt_ids.push_back(static_cast<int32_t>(random.index(vocab)));
  for (int64_t i = random.index(40); i > 0; --i) {
    row.generated_ids.push_back(static_cast<int32_t>(random.index(random.index(2) == 0 ? 5 : vocab)));
  }
  const int64_t kind = random.index(4);  // none, biases, allowed ids, all
  if (kind > 0) row.bias.assign(static_cast<size_t>(vocab), kind == 2 ? kMasked : 0);
  for (int64_t i = kind > 0 ? 1 + random.index(30) : 0; i > 0; --i) {
    row.bias[static_cast<size_t>(random.index(vocab))] =
        kind == 2 ? 0 : one_of(random, {-100.0, 100.0, kMasked, any(-5, 5)});
  }
  for (int64_t i = random.index(3) * 2; i > 0; --i) row.masked_ids.push_back(static_cast<int32_t>(random.index(vocab)));
  return row;
}

}  // namespace tokenmill::test
