//! Each operation, interrupted at each step.
