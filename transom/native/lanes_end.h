// Takes back what a level defined, for the next one.
#undef LEVEL
#undef NAME
#undef LANES
#undef TARGET
#undef INLINE
