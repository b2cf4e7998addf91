"""What a page is built from: buttons, head grids, figures, forms and notices."""
