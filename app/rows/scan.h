#pragma once
#include <functional>
#include <string_view>

namespace tokenmill::rows {

/// Walks the members of a record's top-level object without parsing: key and value as they stand in the text (a string
/// value with its quotes, escapes untouched). visit returns false to stop. Tolerates damage: a record that is cut short
/// or broken gives the members before the damage, and one whose value is cut off with an empty value. Linear, no
/// allocation, any bytes.
void scan_members(std::string_view record,
                  const std::function<bool(std::string_view key, std::string_view value)>& visit);

/// The last top-level member of that name, as it stands in the text; empty when there is none before any damage.
std::string_view scan_member(std::string_view record, std::string_view name);

/// The part of a record that its prompt begins with: rows with equal beginnings here have equal beginnings of their
/// token ids (nearly always: the text is still escaped). Used to group rows before anything is tokenized.
std::string_view prompt_bytes(std::string_view record);

}  // namespace tokenmill::rows
