#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "app/build.h"
#include "app/chat.h"
#include "app/commands/commands.h"
#include "engine/memory_plan.h"
#include "engine/models/checkpoint.h"

namespace tokenmill::app {
namespace {

void print_config(const Checkpoint& checkpoint, std::ostream& out) {
  const ModelConfig& c = checkpoint.config();
  const auto line = [&](const char* name, const auto& value) { fmt::print(out, "{:<22}{}\n", name, value); };
  line("model", checkpoint.path());
  line("format", checkpoint.is_gguf() ? "GGUF" : "Hugging Face directory");
  line("architecture", c.architecture);
  line("dtype", c.dtype ? std::string(to_string(*c.dtype)) : "not stated");
  line("vocab_size", c.vocab_size);
  line("hidden_size", c.hidden_size);
  line("intermediate_size", c.intermediate_size);
  line("num_layers", c.num_layers);
  line("num_heads", c.num_heads);
  line("num_kv_heads", c.num_kv_heads);
  line("head_dim", c.head_dim);
  line("max_positions", c.max_positions);
  line("rope_theta", c.rope.theta);
  line("rms_norm_eps", c.rms_norm_eps);
  line("tied embeddings", c.tie_embeddings ? "yes" : "no");
  line("eos_token_ids", fmt::format("{}", fmt::join(checkpoint.eos_token_ids(), ", ")));
  const GenerationDefaults& g = checkpoint.generation();
  std::string defaults;
  const auto add = [&](const char* name, const auto& value) {
    if (value) defaults += fmt::format("{}{} {}", defaults.empty() ? "" : ", ", name, *value);
  };
  add("temperature", g.temperature);
  add("top_p", g.top_p);
  add("top_k", g.top_k);
  add("min_p", g.min_p);
  add("repetition_penalty", g.repetition_penalty);
  line("generation defaults", defaults.empty() ? "none" : defaults);
  if (!g.not_supported.empty()) line("  not available", fmt::format("{}", fmt::join(g.not_supported, ", ")));
}

void print_text_side(const TokenizerSource& source, const std::string& template_file, std::ostream& out) {
  fmt::print(out, "{:<22}{} ids\n", "tokenizer", source.tokenizer.vocab_size());
  for (const auto& [name, token] : source.special_tokens) fmt::print(out, "  {:<20}{}\n", name, token);
  std::string chat = "none";
  try {
    if (const auto found = load_chat_template(source, template_file))
      chat = found->content_format() == text::ContentFormat::kParts ? "understood; takes content as parts"
                                                                    : "understood; takes content as text";
  } catch (const Error& error) {
    chat = fmt::format("refused: {}", error.what());
  }
  fmt::print(out, "{:<22}{}\n", "chat template", chat);
}

void print_tensors(const Checkpoint& checkpoint, std::ostream& out) {
  const auto& tensors = checkpoint.weights().all();
  int64_t elements = 0;
  for (const auto& [name, source] : tensors) {
    int64_t count = 1;
    for (const int64_t size : source.shape) count *= size;
    elements += count;
  }
  fmt::print(out, "{:<22}{} with {} values, {}\n", "tensors", tensors.size(), elements,
             format_bytes(checkpoint.total_weight_bytes()));
  for (const auto& [name, source] : tensors)
    fmt::print(out, "  {:<58}{:<6}[{}] {}\n", name,
               source.unsupported_type.empty() ? weight_format_info(source.format).name
                                               : std::string_view(source.unsupported_type),
               fmt::join(source.shape, ", "), format_bytes(source.num_bytes));
}

}  // namespace

int inspect(RunOptions options, std::ostream& out) {
  finish_options(options, "inspect", 1);
  const Checkpoint checkpoint(options.model);
  print_config(checkpoint, out);
  try {
    print_text_side(load_tokenizer(options.model), options.chat_template, out);
  } catch (const Error& error) {
    fmt::print(out, "{:<22}refused: {}\n", "tokenizer", error.what());
  }
  print_tensors(checkpoint, out);
  // What run would refuse before reading weights: tensors that are missing, misshapen or of a type that cannot be loaded.
  const auto ops = make_ops(Device{}, {.num_threads = 1, .cpu_isa = options.cpu_isa});
  WeightBuilder builder(*ops, checkpoint.weights(), DType::kF32);
  const ModelConfig& config = checkpoint.config();
  const Decoder decoder(config, whole_model(config), config.max_positions, builder);
  warn_of_unused_tensors(builder, checkpoint.config());
  fmt::print(out, "{:<22}{:.1f} M in the tensors that the model uses\n", "parameters", static_cast<double>(builder.num_parameters()) / 1e6);
  return 0;
}

}  // namespace tokenmill::app
